//! A level that drains at a constant rate: what a token bucket and a leaky bucket both are.

use super::Exact;

/// A bucket with the level it had at an instant.
#[derive(Clone, Debug)]
pub(super) struct Tank {
    rate: Exact,
    burst: i128,
    level: Exact,
    at: i128,
}

impl Tank {
    pub(super) fn new(rate: Exact, burst: i128) -> Self {
        Self { rate, burst, level: Exact::from_integer(0), at: 0 }
    }

    /// The level at an instant.
    pub(super) fn level(&self, at: i128) -> Exact {
        let level = self.level - self.rate * (at - self.at).max(0);
        level.max(Exact::from_integer(0))
    }

    pub(super) fn fill(&mut self, cost: i128, now: i128) {
        self.settle(now);
        self.level = (self.level + cost).min(Exact::from_integer(2 * self.burst));
    }

    /// Takes out what has not drained of a cost that was put in `then`.
    pub(super) fn give_back(&mut self, cost: i128, then: i128, now: i128) {
        self.settle(now);
        let zero = Exact::from_integer(0);
        let left = (Exact::from_integer(cost) - self.rate * (now - then).max(0)).max(zero);
        self.level = (self.level - left).max(zero);
    }

    pub(super) fn empty(&mut self) {
        self.level = Exact::from_integer(0);
    }

    pub(super) fn rebase(&mut self, now: i128) {
        self.at = self.at.min(now);
    }

    /// Goes on at another rate, if it is another, with what is used in whole requests.
    pub(super) fn change(&mut self, rate: Exact, burst: i128, now: i128) {
        self.settle(now);
        if rate != self.rate {
            self.level = self.level.ceil();
        }
        self.level = self.level.min(Exact::from_integer(2 * burst));
        (self.rate, self.burst) = (rate, burst);
    }

    fn settle(&mut self, now: i128) {
        self.level = self.level(now);
        self.at = now;
    }
}
