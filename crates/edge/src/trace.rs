//! Traces: what becomes of a request, told to a collector of OpenTelemetry as spans.
//!
//! A door that has a [`Tracer`] begins a span for each request (`active`), continues the trace of its caller
//! (`context`), and leaves what has ended in a queue (`queue`). A task beside the doors exports it (`export`). A door
//! that has none does nothing of all that, and headers pass as they are.

mod active;
mod collector;
mod context;
mod export;
mod ids;
mod otlp;
mod queue;
mod span;

use std::fmt;
use std::sync::Arc;

use tidegate_core::time::Timestamp;
use tokio::sync::watch;

pub(crate) use active::{Asked, Deciding, Serving, decided};
pub use collector::{BadCollector, Collector, CollectorAt};
pub use queue::Tally;

use active::OTHER_METHOD;
use ids::Ids;
use queue::Queue;
use span::Span;

/// Who tells, which is told with every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The name of the service.
    pub service: String,
    /// What else is known of it.
    pub attributes: Vec<(String, String)>,
}

/// How traces are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where spans go.
    pub collector: Collector,
    /// Who tells.
    pub resource: Resource,
    /// How many of a million traces are told that begin here. Of others the caller has decided.
    pub per_million: u32,
}

/// How the collector fares, told when that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// It does not take spans any more.
    Lost {
        /// Why.
        why: &'a str,
    },
    /// It takes them again.
    Back,
}

/// Makes spans and exports them; copies are one.
#[derive(Clone)]
pub struct Tracer(Arc<Shared>);

struct Shared {
    settings: Settings,
    ids: Ids,
    queue: Queue,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    hear: Box<dyn Fn(News<'_>) + Send + Sync>,
    stopping: watch::Sender<bool>,
}

impl Tracer {
    /// A tracer with a clock, and somebody who hears how the collector fares.
    #[must_use]
    pub fn new(
        settings: Settings,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
        hear: impl Fn(News<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (ids, queue, stopping) = (Ids::default(), Queue::default(), watch::Sender::new(false));
        Self(Arc::new(Shared { settings, ids, queue, clock, hear: Box::new(hear), stopping }))
    }

    /// What became of spans since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.0.queue.tally()
    }

    /// A request begins.
    pub(crate) fn serve(&self, asked: Asked<'_>) -> Box<Serving> {
        Box::new(Serving::begin(self, asked))
    }

    fn ids(&self) -> &Ids {
        &self.0.ids
    }

    fn now(&self) -> Timestamp {
        (self.0.clock)()
    }

    fn put(&self, span: Span) {
        self.0.queue.put(span);
    }

    /// Whether a trace that begins here is told. The last bytes of its name decide, so that all who have the same
    /// ratio decide the same.
    fn draws(&self, trace: &context::TraceId) -> bool {
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
