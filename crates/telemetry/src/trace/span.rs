//! A span that has ended, as it waits to be told: what happened, from when to when, and below which other.
//!
//! Plain values, copied once; names and numbers of OpenTelemetry are given to them in [`otlp`](super::otlp).

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::ApiKind;

use super::context::{SpanId, TraceContext};

/// A span that has ended.
#[derive(Clone, Debug)]
pub(super) struct FinishedSpan {
    /// Its own place.
    pub(super) context: TraceContext,
    pub(super) parent: Option<ParentSpan>,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    pub(super) kind: SpanKind,
}

/// The span above.
#[derive(Clone, Debug)]
pub(super) struct ParentSpan {
    pub(super) span: SpanId,
    /// Whether it is another process's, and what vendors said with it.
    pub(super) remote: bool,
    pub(super) state: Option<String>,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum SpanKind {
    /// A request was answered at a door.
    Server(Box<ServerAttributes>),
    /// It was decided whether it passes.
    Decision(Box<DecisionAttributes>),
    /// It was passed on to an upstream.
    Upstream { method: &'static str, server: Option<(String, u16)>, status: Option<u16> },
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub(super) struct ServerAttributes {
    pub(super) api: ApiKind,
    pub(super) method: &'static str,
    pub(super) path: String,
    /// Where it was asked, if that is a place of our own.
    pub(super) route: Option<&'static str>,
    /// None where the caller went away before.
    pub(super) status: Option<SpanStatus>,
}

/// How it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanStatus {
    Http(u16),
    Grpc(u8),
}

/// A decision, or several that are one call's: of them the first that refuses, or else the first.
#[derive(Clone, Debug)]
pub(super) struct DecisionAttributes {
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
    pub(super) deciding_rule: Option<DecidingRule>,
}

/// The rule that counts most.
#[derive(Clone, Debug)]
pub(super) struct DecidingRule {
    pub(super) rule: String,
    pub(super) mode: &'static str,
    pub(super) verdict: Verdict,
    /// What was charged to it.
    pub(super) cost: u64,
    /// Its limit and what is left of it, where it counts.
    pub(super) limit_remaining: Option<(u64, u64)>,
}
