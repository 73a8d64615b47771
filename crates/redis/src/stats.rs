//! What is counted of calls to the servers: plain numbers that only grow, for whoever gives them names.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

/// Upper bounds of how long an answer takes, in microseconds.
const ROUND_TRIP_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// Upper bounds of how many requests travel together.
const BATCH: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// What was counted since the start, and how the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// From when commands are sent until all answers are there, in microseconds; of calls that were answered.
    pub round_trip_us: Histogram,
    /// How many requests travelled together.
    pub batch: Histogram,
    /// Requests that were not answered, by why; every kind.
    pub errors: Vec<(Cause, u64)>,
    /// Every server, and whether it is asked.
    pub servers: Vec<(String, BreakerState)>,
    /// How many nodes count in the store, as far as is known.
    pub nodes: u32,
}

/// A distribution of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds, ascending.
    pub bounds: &'static [u64],
    /// How many are in each class; one more than bounds, for what exceeds all of them.
    pub counts: Vec<u64>,
    /// The sum of all.
    pub sum: u64,
}

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no answer in time.
    Timeout,
    /// There was no connection, or it was lost.
    Disconnected,
    /// The server is not asked at present.
    BreakerOpen,
    /// The server answered with an error, or with what is no answer.
    Refused,
    /// Too many waited already, or the request was too large.
    Crowded,
    /// The slot was on its way from one server of the cluster to another.
    Moving,
}

/// Whether a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// It is.
    Closed,
    /// It is, by a part of the requests.
    Closing,
    /// It is not.
    Open,
}

impl Cause {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Timeout,
        Self::Disconnected,
        Self::BreakerOpen,
        Self::Refused,
        Self::Crowded,
        Self::Moving,
    ];

    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::BreakerOpen => "breaker_open",
            Self::Refused => "refused",
            Self::Crowded => "crowded",
            Self::Moving => "moving",
        }
    }
}

impl BreakerState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Closing, Self::Open];

    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Closing => "closing",
            Self::Open => "open",
        }
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    round_trip: Counted<{ ROUND_TRIP_US.len() + 1 }>,
    batch: Counted<{ BATCH.len() + 1 }>,
    errors: [AtomicU64; Cause::ALL.len()],
}

#[derive(Debug)]
struct Counted<const N: usize> {
    classes: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Counted<N> {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Counted<N> {
    fn add(&self, bounds: &[u64], value: u64) {
        let class = bounds.iter().position(|bound| value <= *bound).unwrap_or(N - 1);
        self.classes[class].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    fn told(&self, bounds: &'static [u64]) -> Histogram {
        let counts = self.classes.iter().map(|class| class.load(Relaxed)).collect();
        Histogram { bounds, counts, sum: self.sum.load(Relaxed) }
    }
}

impl Counters {
    /// Commands that were sent at an instant are answered.
    pub(crate) fn answered(&self, sent: Instant) {
        let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.round_trip.add(&ROUND_TRIP_US, took);
    }

    /// So many requests travel together.
    pub(crate) fn together(&self, requests: usize) {
        self.batch.add(&BATCH, requests as u64);
    }

    /// A request was not answered.
    pub(crate) fn failed(&self, cause: Cause) {
        let at = Cause::ALL.iter().position(|known| *known == cause).unwrap_or(0);
        self.errors[at].fetch_add(1, Relaxed);
    }

    pub(crate) fn told(&self, servers: Vec<(String, BreakerState)>, nodes: u32) -> Stats {
        let errors = Cause::ALL.into_iter().zip(&self.errors);
        Stats {
            round_trip_us: self.round_trip.told(&ROUND_TRIP_US),
            batch: self.batch.told(&BATCH),
            errors: errors.map(|(cause, count)| (cause, count.load(Relaxed))).collect(),
            servers,
            nodes,
        }
    }
}
