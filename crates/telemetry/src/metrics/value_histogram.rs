//! A concurrent histogram of integers, such as durations.

use super::counts::HistogramSnapshot;
use super::striped::Striped;

/// Number of bucket bounds.
const BOUND_COUNT: usize = 14;

/// Inclusive upper bounds of the buckets; of durations, in microseconds.
pub type HistogramBounds = [u64; BOUND_COUNT];

/// Index of the sum, after the buckets and the overflow bucket.
const SUM_INDEX: usize = BOUND_COUNT + 1;

/// Counts values by size.
pub struct ValueHistogram {
    bounds: &'static HistogramBounds,
    counts: Striped<{ BOUND_COUNT + 2 }>,
}

impl ValueHistogram {
    /// An empty histogram with these bucket bounds.
    pub fn new(bounds: &'static HistogramBounds) -> Self {
        Self { bounds, counts: Striped::new() }
    }

    /// Adds a value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        self.counts.add(bucket.unwrap_or(BOUND_COUNT), 1);
        self.counts.add(SUM_INDEX, value);
    }

    /// A snapshot of all buckets.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: (0..SUM_INDEX).map(|at| self.counts.sum(at)).collect(),
            sum: self.counts.sum(SUM_INDEX),
        }
    }
}
