//! A span that has ended, as it waits to be told: what happened, from when to when, and below which other.
//!
//! Plain values, copied once; names and numbers of OpenTelemetry are given to them in [`otlp`](super::otlp).

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::Door;

use super::context::{Context, SpanId};

/// A span that has ended.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Its own place.
    pub(super) context: Context,
    pub(super) parent: Option<Parent>,
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) what: What,
}

/// The span above.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) span: SpanId,
    /// Whether it is another process's, and what vendors said with it.
    pub(super) remote: bool,
    pub(super) state: Option<String>,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A request was answered at a door.
    Served(Box<Served>),
    /// It was decided whether it passes.
    Decided(Box<Decided>),
    /// It was passed on to an upstream.
    Called { method: &'static str, server: Option<(String, u16)>, status: Option<u16> },
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) door: Door,
    pub(super) method: &'static str,
    pub(super) path: String,
    /// Where it was asked, if that is a place of our own.
    pub(super) route: Option<&'static str>,
    /// None where the caller went away before.
    pub(super) status: Option<Status>,
}

/// How it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Http(u16),
    Grpc(u8),
}

/// A decision, or several that are one call's: of them the first that refuses, or else the first.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// How many decisions there were.
    pub(super) decisions: usize,
    /// How many rules governed them.
    pub(super) rules: usize,
    pub(super) allowed: bool,
    pub(super) answered_by: AnsweredBy,
    /// How long the store took.
    pub(super) store_time: Option<Micros>,
    /// How long the request has to wait its turn.
    pub(super) delay: Micros,
    pub(super) deciding: Option<Deciding>,
}

/// The rule that counts most.
#[derive(Clone, Debug)]
pub(super) struct Deciding {
    pub(super) rule: String,
    pub(super) mode: &'static str,
    pub(super) verdict: Verdict,
    /// What was charged to it.
    pub(super) cost: u64,
    /// Its limit and what is left of it, where it counts.
    pub(super) left: Option<(u64, u64)>,
}
