//! Tracing: exports spans of requests to an OpenTelemetry collector.
//!
//! A listener with a [`Tracer`] starts a span for each request (`active_spans`) and continues the
//! trace of its caller (`context`). Finished spans go to a queue (`span_queue`), and a background
//! task exports them (`export`). A listener without a tracer forwards trace headers unchanged.

mod active_spans;
mod collector;
mod context;
mod export;
mod id_generator;
mod otlp;
mod span;
mod span_queue;

use std::fmt;
use std::sync::Arc;

use tidegate_core::time::Timestamp;
use tokio::sync::watch;

pub use active_spans::{DecisionSpan, RequestAttributes, ServerSpan, finish_decision};
pub use collector::{CollectorEndpoint, CollectorEndpointError, OtlpCollector};
pub use span_queue::SpanExportStats;

use active_spans::OTHER_METHOD;
use id_generator::TraceIdGenerator;
use span::FinishedSpan;
use span_queue::SpanQueue;

/// The OpenTelemetry resource: describes this process in every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceResource {
    /// The `service.name` attribute.
    pub service: String,
    /// Further resource attributes.
    pub attributes: Vec<(String, String)>,
}

/// The configuration of tracing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector that receives the spans.
    pub collector: OtlpCollector,
    /// Describes this process.
    pub resource: TraceResource,
    /// Sampling ratio of traces that start here, in parts per million. For other traces, the
    /// caller's sampling decision applies.
    pub per_million: u32,
}

/// A change in the state of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExporterEvent<'a> {
    /// The collector no longer accepts spans.
    CollectorLost {
        /// The error of the failed export.
        why: &'a str,
    },
    /// The collector accepts spans again.
    CollectorRecovered,
}

/// Creates and exports spans. Clones share their state.
#[derive(Clone)]
pub struct Tracer(Arc<TracerShared>);

struct TracerShared {
    pub settings: Settings,
    ids: TraceIdGenerator,
    queue: SpanQueue,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    on_event: Box<dyn Fn(ExporterEvent<'_>) + Send + Sync>,
    stopping: watch::Sender<bool>,
}

impl Tracer {
    /// Creates a tracer. It calls `on_event` when the state of the collector changes.
    #[must_use]
    pub fn new(
        settings: Settings,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
        on_event: impl Fn(ExporterEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (ids, queue, stopping) =
            (TraceIdGenerator::default(), SpanQueue::default(), watch::Sender::new(false));
        Self(Arc::new(TracerShared {
            settings,
            ids,
            queue,
            clock,
            on_event: Box::new(on_event),
            stopping,
        }))
    }

    /// The number of exported, dropped and waiting spans.
    #[must_use]
    pub fn export_stats(&self) -> SpanExportStats {
        self.0.queue.stats()
    }

    /// Starts the span of a request.
    pub fn start_server_span(&self, request: RequestAttributes<'_>) -> Box<ServerSpan> {
        Box::new(ServerSpan::start(self, request))
    }

    fn ids(&self) -> &TraceIdGenerator {
        &self.0.ids
    }

    fn now(&self) -> Timestamp {
        (self.0.clock)()
    }

    fn enqueue(&self, span: FinishedSpan) {
        self.0.queue.push(span);
    }

    /// Whether to sample a trace that starts here. The last seven bytes of its ID decide, so all
    /// services with the same ratio make the same decision.
    fn should_sample(&self, trace: &context::TraceId) -> bool {
        let [.., a, b, c, d, e, f, g] = *trace;
        let random = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        // 56 random bits, as in W3C Trace Context Level 2.
        let threshold = (u128::from(self.0.settings.per_million) << 56) / 1_000_000;
        u128::from(random) < threshold
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
