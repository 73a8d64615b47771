//! Statistics of calls to the servers: monotonic counters without metric names, which the exporter
//! adds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

/// Bucket bounds of the round-trip histogram, in microseconds.
const ROUND_TRIP_BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// Bucket bounds of the batch-size histogram.
const BATCH_SIZE_BOUNDS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Statistics since the start, and the state of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Round-trip time of answered calls, from sending until all replies arrived, in microseconds.
    pub round_trip_us: RedisHistogram,
    /// Requests per call.
    pub batch: RedisHistogram,
    /// Failed requests by cause; includes every cause.
    pub errors: Vec<(FailureCause, u64)>,
    /// Every server and the state of its circuit breaker.
    pub servers: Vec<(String, BreakerState)>,
    /// Number of live nodes that use the store, as far as known.
    pub nodes: u32,
}

/// A histogram of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisHistogram {
    /// Upper bounds, ascending.
    pub bounds: &'static [u64],
    /// Count per bucket; the last one is for values above all bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// No reply in time.
    Timeout,
    /// No connection, or it was lost.
    Disconnected,
    /// The circuit breaker is open.
    BreakerOpen,
    /// The server replied with an error, or with something unexpected.
    ServerError,
    /// The queue was full, or the request too large.
    Overloaded,
    /// The slot was migrating between servers of the cluster.
    SlotMoving,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All requests are sent.
    Closed,
    /// A growing share of requests is sent.
    Closing,
    /// No requests are sent.
    Open,
}

impl FailureCause {
    /// Every cause.
    pub const ALL: [Self; 6] = [
        Self::Timeout,
        Self::Disconnected,
        Self::BreakerOpen,
        Self::ServerError,
        Self::Overloaded,
        Self::SlotMoving,
    ];

    /// Metric label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::BreakerOpen => "breaker_open",
            Self::ServerError => "refused",
            Self::Overloaded => "crowded",
            Self::SlotMoving => "moving",
        }
    }
}

impl BreakerState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Closing, Self::Open];

    /// Metric label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Closing => "closing",
            Self::Open => "open",
        }
    }
}

/// The live counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    round_trip: AtomicHistogram<{ ROUND_TRIP_BOUNDS_US.len() + 1 }>,
    batch: AtomicHistogram<{ BATCH_SIZE_BOUNDS.len() + 1 }>,
    errors: [AtomicU64; FailureCause::ALL.len()],
}

#[derive(Debug)]
struct AtomicHistogram<const N: usize> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for AtomicHistogram<N> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> AtomicHistogram<N> {
    fn add(&self, bounds: &[u64], value: u64) {
        let class = bounds.iter().position(|bound| value <= *bound).unwrap_or(N - 1);
        self.buckets[class].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    fn snapshot(&self, bounds: &'static [u64]) -> RedisHistogram {
        let counts = self.buckets.iter().map(|class| class.load(Relaxed)).collect();
        RedisHistogram { bounds, counts, sum: self.sum.load(Relaxed) }
    }
}

impl CallCounters {
    /// Records the reply to commands that were sent at `sent`.
    pub(crate) fn record_round_trip(&self, sent: Instant) {
        let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.round_trip.add(&ROUND_TRIP_BOUNDS_US, took);
    }

    /// Records the number of requests in a call.
    pub(crate) fn record_batch_size(&self, requests: usize) {
        self.batch.add(&BATCH_SIZE_BOUNDS, requests as u64);
    }

    /// Records a failed request.
    pub(crate) fn record_failure(&self, cause: FailureCause) {
        let at = FailureCause::ALL.iter().position(|known| *known == cause).unwrap_or(0);
        self.errors[at].fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self, servers: Vec<(String, BreakerState)>, nodes: u32) -> Stats {
        let errors = FailureCause::ALL.into_iter().zip(&self.errors);
        Stats {
            round_trip_us: self.round_trip.snapshot(&ROUND_TRIP_BOUNDS_US),
            batch: self.batch.snapshot(&BATCH_SIZE_BOUNDS),
            errors: errors.map(|(cause, count)| (cause, count.load(Relaxed))).collect(),
            servers,
            nodes,
        }
    }
}
