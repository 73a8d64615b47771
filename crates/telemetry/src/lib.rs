//! Observability: metrics, heavy hitters, violations, the live feed and traces. Observers never
//! influence a decision.

pub mod live_feed;
mod metrics;
mod per_rule;
mod top_keys;
pub mod trace;
mod violation;
mod violation_log;
mod violation_sink;

pub use metrics::{
    DecisionCount, DecisionMetrics, EndpointCount, Exposition, HistogramBounds, HistogramSnapshot,
    MetricKind, MetricUnit, MetricsExporter, MetricsSnapshot, RuleCount, ValueHistogram,
    VerdictCounts,
};
pub use top_keys::{BurstEvent, TopKey, TopKeys, TopKind, TopQuery, Visibility};
pub use violation::{
    IdentityPolicy, RuleViolation, ViolationBatch, ViolationPage, ViolationQuery, ViolationRow,
};
pub use violation_log::{
    QUEUE_CAPACITY, RetentionPolicy, ViolationCounts, ViolationLog, ViolationLogEvent,
    ViolationLogLine,
};
pub use violation_sink::ViolationSink;
