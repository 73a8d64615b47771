//! A finished span that waits for export: its operation, times and parent.
//!
//! Plain values, copied once. [`otlp`](super::otlp) maps them to the names and numbers of
//! OpenTelemetry.

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::ApiKind;

use super::context::{SpanId, TraceContext};

/// A finished span.
#[derive(Clone, Debug)]
pub(super) struct FinishedSpan {
    /// The context of this span.
    pub(super) context: TraceContext,
    pub(super) parent: Option<ParentSpan>,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    pub(super) kind: SpanKind,
}

/// The parent of a span.
#[derive(Clone, Debug)]
pub(super) struct ParentSpan {
    pub(super) span: SpanId,
    /// Whether it belongs to another process.
    pub(super) remote: bool,
    /// The `tracestate` received with it.
    pub(super) state: Option<String>,
}

/// The operation of a span, with its attributes.
#[derive(Clone, Debug)]
pub(super) enum SpanKind {
    /// The handling of a request.
    Server(Box<ServerAttributes>),
    /// The decision whether to allow a request.
    Decision(Box<DecisionAttributes>),
    /// A call to an upstream.
    Upstream { method: &'static str, server: Option<(String, u16)>, status: Option<u16> },
}

/// The attributes of a request.
#[derive(Clone, Debug)]
pub(super) struct ServerAttributes {
    pub(super) api: ApiKind,
    pub(super) method: &'static str,
    pub(super) path: String,
    /// The route, if the request is for an endpoint of Tidegate.
    pub(super) route: Option<&'static str>,
    /// `None` if the client disconnected before the response.
    pub(super) status: Option<SpanStatus>,
}

/// The status of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanStatus {
    Http(u16),
    Grpc(u8),
}

/// The attributes of a decision. If a call has several, they describe the first that refuses, or
/// else the first.
#[derive(Clone, Debug)]
pub(super) struct DecisionAttributes {
    /// Number of decisions of the call.
    pub(super) decisions: usize,
    /// Number of rules that matched, over all decisions.
    pub(super) rules: usize,
    pub(super) allowed: bool,
    pub(super) answered_by: AnsweredBy,
    /// Latency of the store.
    pub(super) store_time: Option<Micros>,
    /// How long the request is delayed by a queueing limit.
    pub(super) delay: Micros,
    pub(super) deciding_rule: Option<DecidingRule>,
}

/// The tightest rule.
#[derive(Clone, Debug)]
pub(super) struct DecidingRule {
    pub(super) rule: String,
    pub(super) mode: &'static str,
    pub(super) verdict: Verdict,
    /// The cost charged to the rule.
    pub(super) cost: u64,
    /// The limit and the remaining quota, if the rule counts.
    pub(super) limit_remaining: Option<(u64, u64)>,
}
