//! How long something took, as a distribution.

use super::counts::HistogramSnapshot;
use super::striped::Striped;

/// How many bounds there are.
const BOUND_COUNT: usize = 14;

/// Upper bounds of classes, in microseconds.
pub type HistogramBounds = [u64; BOUND_COUNT];

/// Where the sum is, after the classes and the one that exceeds all of them.
const SUM_INDEX: usize = BOUND_COUNT + 1;

/// Counts durations.
pub struct DurationHistogram {
    bounds: &'static HistogramBounds,
    counts: Striped<{ BOUND_COUNT + 2 }>,
}

impl DurationHistogram {
    /// An empty histogram with these bucket bounds.
    pub fn new(bounds: &'static HistogramBounds) -> Self {
        Self { bounds, counts: Striped::new() }
    }

    /// Adds a duration, in microseconds.
    pub fn observe(&self, took_us: u64) {
        let class = self.bounds.iter().position(|bound| took_us <= *bound);
        self.counts.add(class.unwrap_or(BOUND_COUNT), 1);
        self.counts.add(SUM_INDEX, took_us);
    }

    /// The distribution so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: (0..SUM_INDEX).map(|at| self.counts.sum(at)).collect(),
            sum: self.counts.sum(SUM_INDEX),
        }
    }
}
