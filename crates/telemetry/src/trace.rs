//! Traces: what becomes of a request, told to a collector of OpenTelemetry as spans.
//!
//! A door that has a [`Tracer`] begins a span for each request (`active`), continues the trace of its caller
//! (`context`), and leaves what has ended in a queue (`queue`). A task beside the doors exports it (`export`). A door
//! that has none does nothing of all that, and headers pass as they are.

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

/// Who tells, which is told with every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceResource {
    /// The name of the service.
    pub service: String,
    /// What else is known of it.
    pub attributes: Vec<(String, String)>,
}

/// How traces are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where spans go.
    pub collector: OtlpCollector,
    /// Who tells.
    pub resource: TraceResource,
    /// How many of a million traces are told that begin here. Of others the caller has decided.
    pub per_million: u32,
}

/// How the collector fares, told when that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExporterEvent<'a> {
    /// It does not take spans any more.
    CollectorLost {
        /// Why.
        why: &'a str,
    },
    /// It takes them again.
    CollectorRecovered,
}

/// Makes spans and exports them; copies are one.
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
    /// A tracer with a clock, and somebody who hears how the collector fares.
    #[must_use]
    pub fn new(
        settings: Settings,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
        hear: impl Fn(ExporterEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (ids, queue, stopping) =
            (TraceIdGenerator::default(), SpanQueue::default(), watch::Sender::new(false));
        Self(Arc::new(TracerShared {
            settings,
            ids,
            queue,
            clock,
            on_event: Box::new(hear),
            stopping,
        }))
    }

    /// What became of spans since the start.
    #[must_use]
    pub fn export_stats(&self) -> SpanExportStats {
        self.0.queue.stats()
    }

    /// A request begins.
    pub fn start_server_span(&self, asked: RequestAttributes<'_>) -> Box<ServerSpan> {
        Box::new(ServerSpan::start(self, asked))
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

    /// Whether a trace that begins here is told. The last bytes of its name decide, so that all who have the same
    /// ratio decide the same.
    fn should_sample(&self, trace: &context::TraceId) -> bool {
        let [.., a, b, c, d, e, f, g] = *trace;
        let drawn = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        // Of 2^56, as Level 2 of the specification has it.
        let below = (u128::from(self.0.settings.per_million) << 56) / 1_000_000;
        u128::from(drawn) < below
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
