//! A node's view of a counter: the store's last answer, and what can be concluded from it later.

use tidegate_core::decision::Reading;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::time::{Micros, Timestamp};

use crate::lease::{CounterDebt, wait_until_fits};

/// An answer of the store. Times are of the lease clock, except those in the reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterView {
    reading: Reading,
    /// When the question was sent. The age of the view counts from here.
    asked_at: Timestamp,
    /// When the answer was processed. The counter drains from here: the store read it earlier, so
    /// the view never shows more room than there is.
    answered_at: Timestamp,
}

impl CounterView {
    pub(super) const fn new(reading: Reading, asked_at: Timestamp, answered_at: Timestamp) -> Self {
        Self { reading, asked_at, answered_at }
    }

    /// The age of the view, at most.
    pub(super) const fn age(&self, now: Timestamp) -> Micros {
        now.since(self.asked_at)
    }

    /// Whether the store made this answer after the other one.
    pub(super) fn is_later_than(&self, other: &Self) -> bool {
        self.reading.now >= other.reading.now
    }

    /// The units that fit, if no other node charges any. A bucket has drained since; a window is
    /// taken as it was until it is empty.
    pub(super) fn room(&self, policy: &Policy, now: Timestamp) -> u64 {
        let elapsed = now.since(self.answered_at);
        let Reading { remaining, reset_after, .. } = self.reading;
        match policy.meter() {
            _ if elapsed >= reset_after => policy.limit(),
            // `remaining` does not show debt, the time until the bucket is empty does.
            Meter::Bucket { units, .. } => {
                let left = reset_after.get().saturating_sub(elapsed.get());
                units.room_above(left.saturating_mul(units.per_micro)).max(remaining)
            }
            _ => remaining,
        }
    }

    /// How long from now until a cost fits, if no other node charges any.
    pub(super) fn wait_for(&self, policy: &Policy, cost: u64, now: Timestamp) -> Micros {
        self.less_elapsed(wait_until_fits(&self.reading, policy, cost, CounterDebt::Possible), now)
    }

    /// The counter's state with `open` units that the store does not know of.
    pub(super) fn reading(&self, policy: &Policy, open: u64, now: Timestamp) -> Reading {
        let store_now = self.store_now(now);
        let reset_after = self.less_elapsed(self.reading.reset_after, now);
        let open_reset = match policy.meter() {
            _ if open == 0 => Micros::ZERO,
            Meter::Bucket { units, .. } => {
                let open = open.saturating_mul(units.per_request);
                sum(reset_after, units.drain_time(open.min(units.ceiling)))
            }
            Meter::Fixed => window_rest(policy, store_now),
            Meter::Log | Meter::Slots => policy.quota().window,
            Meter::Counter(_) => sum(window_rest(policy, store_now), policy.quota().window),
        };
        Reading {
            limit: policy.limit(),
            remaining: self.room(policy, now).saturating_sub(open),
            reset_after: reset_after.max(open_reset),
            now: store_now,
            ..Reading::default()
        }
    }

    /// The store's clock, at least.
    const fn store_now(&self, now: Timestamp) -> Timestamp {
        self.reading.now.plus(now.since(self.answered_at))
    }

    const fn less_elapsed(&self, span: Micros, now: Timestamp) -> Micros {
        Micros::new(span.get().saturating_sub(now.since(self.answered_at).get()))
    }
}

/// Time until the current window ends.
fn window_rest(policy: &Policy, now: Timestamp) -> Micros {
    let window = policy.quota().window.get();
    Micros::new(window - now.as_micros() % window)
}

const fn sum(a: Micros, b: Micros) -> Micros {
    Micros::new(a.get().saturating_add(b.get()))
}

/// The part of `cost` forced units that did not fit. The reading of a window does not show debt, so
/// for a window this is the whole cost.
pub(super) fn overshoot(policy: &Policy, cost: u64, reading: &Reading) -> u64 {
    match policy.meter() {
        _ if !reading.verdict.refuses() => 0,
        Meter::Bucket { units, .. } => {
            let used = reading.reset_after.get().saturating_mul(units.per_micro);
            // The time is rounded up by less than a microsecond.
            let used = used.saturating_sub(units.per_micro - 1);
            used.saturating_sub(units.capacity).div_ceil(units.per_request).min(cost)
        }
        _ => cost,
    }
}
