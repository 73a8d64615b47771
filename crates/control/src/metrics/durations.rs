//! How long something took, as a distribution.

use super::counts::Distribution;
use super::striped::Striped;

/// How many bounds there are.
const BOUNDS: usize = 14;

/// Upper bounds of classes, in microseconds.
pub(crate) type Bounds = [u64; BOUNDS];

/// Where the sum is, after the classes and the one that exceeds all of them.
const SUM: usize = BOUNDS + 1;

/// Counts durations.
pub(crate) struct Durations {
    bounds: &'static Bounds,
    counts: Striped<{ BOUNDS + 2 }>,
}

impl Durations {
    pub(crate) fn new(bounds: &'static Bounds) -> Self {
        Self { bounds, counts: Striped::new() }
    }

    pub(crate) fn add(&self, took_us: u64) {
        let class = self.bounds.iter().position(|bound| took_us <= *bound);
        self.counts.add(class.unwrap_or(BOUNDS), 1);
        self.counts.add(SUM, took_us);
    }

    pub(crate) fn told(&self) -> Distribution {
        Distribution {
            bounds: self.bounds,
            counts: (0..SUM).map(|at| self.counts.sum(at)).collect(),
            sum: self.counts.sum(SUM),
        }
    }
}
