//! A level that drains at a constant rate: the state of both the token bucket and the leaky bucket.

use super::ExactRatio;

/// A bucket's level at the time `at`.
#[derive(Clone, Debug)]
pub(super) struct DrainingBucket {
    rate: ExactRatio,
    burst: i128,
    level: ExactRatio,
    at: i128,
}

impl DrainingBucket {
    pub(super) fn new(rate: ExactRatio, burst: i128) -> Self {
        Self { rate, burst, level: ExactRatio::from_integer(0), at: 0 }
    }

    /// The level at a given time.
    pub(super) fn level(&self, at: i128) -> ExactRatio {
        let level = self.level - self.rate * (at - self.at).max(0);
        level.max(ExactRatio::from_integer(0))
    }

    pub(super) fn fill(&mut self, cost: i128, now: i128) {
        self.drain_to(now);
        self.level = (self.level + cost).min(ExactRatio::from_integer(2 * self.burst));
    }

    /// Removes the part of a cost charged at `then` that has not drained.
    pub(super) fn refund(&mut self, cost: i128, then: i128, now: i128) {
        self.drain_to(now);
        let zero = ExactRatio::from_integer(0);
        let left = (ExactRatio::from_integer(cost) - self.rate * (now - then).max(0)).max(zero);
        self.level = (self.level - left).max(zero);
    }

    pub(super) fn clear(&mut self) {
        self.level = ExactRatio::from_integer(0);
    }

    pub(super) fn rebase(&mut self, now: i128) {
        self.at = self.at.min(now);
    }

    /// Changes the rate and burst. If the rate differs, usage is rounded up to whole requests.
    pub(super) fn set_rate(&mut self, rate: ExactRatio, burst: i128, now: i128) {
        self.drain_to(now);
        if rate != self.rate {
            self.level = self.level.ceil();
        }
        self.level = self.level.min(ExactRatio::from_integer(2 * burst));
        (self.rate, self.burst) = (rate, burst);
    }

    fn drain_to(&mut self, now: i128) {
        self.level = self.level(now);
        self.at = now;
    }
}
