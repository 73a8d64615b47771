//! Sliding window counter: this window's count plus the share of the last one's that still overlaps.
//!
//! A(T) ≤ L(1 + T/W) for T ≤ W. The previous window is weighted, never the current one. Where counts
//! times microseconds would pass 2^53 the window is cut into coarser ticks: elapsed ticks rounded
//! down and ticks a window rounded up, so the weight is never too small.

use super::{Fit, Gauge, Tally};
use crate::quota::{Quota, Ticks};
use crate::time::{Micros, Timestamp};

/// The requests of a window and of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The number of the current window since the epoch.
    pub window: u64,
    /// What was admitted in it.
    pub current: u64,
    /// What was admitted in the one before.
    pub previous: u64,
}

impl Pair {
    /// The pair for the window that `now` lies in. Counts that lie ahead are taken as now's.
    pub(super) fn at(tally: Option<&Tally>, quota: &Quota, ticks: Ticks, now: Timestamp) -> Self {
        let window = now.as_micros() / quota.window.get();
        let (current, previous) = match tally {
            Some(Tally::Counter(kept)) if kept.window > window => (kept.folded(quota), 0),
            Some(Tally::Counter(kept)) if kept.window == window => (kept.current, kept.previous),
            Some(Tally::Counter(kept)) if kept.window + 1 == window => (0, kept.current),
            _ => (0, 0),
        };
        // A quota that was lowered since may have left more than its debt cap behind. It is kept, or
        // the change would refill, up to where counts times ticks are exact; it dies in two windows.
        let most = ticks.most();
        Self { window, current: current.min(most), previous: previous.min(most) }
    }

    /// Both counts as this window's: how much of the previous one had slid out when the clock went
    /// back is not known, and weighting it anew at another place in the window could refill.
    fn folded(self, quota: &Quota) -> u64 {
        self.capped(quota, self.current.saturating_add(self.previous))
    }

    /// Debt ends at one more window, unless a lowered quota has left more.
    fn capped(self, quota: &Quota, count: u64) -> u64 {
        count.min(quota.requests.saturating_mul(2).max(self.current))
    }

    pub(super) fn rebase(&mut self, quota: &Quota, window: u64) {
        if self.window > window {
            *self = Self { window, current: self.folded(quota), previous: 0 };
        }
    }

    pub(super) fn plus(self, quota: &Quota, cost: u64) -> Self {
        Self { current: self.capped(quota, self.current.saturating_add(cost)), ..self }
    }

    pub(super) fn minus(self, quota: &Quota, cost: u64, charged_at: Timestamp) -> Self {
        let window = charged_at.as_micros() / quota.window.get();
        if window == self.window {
            Self { current: self.current.saturating_sub(cost), ..self }
        } else if window.checked_add(1) == Some(self.window) {
            Self { previous: self.previous.saturating_sub(cost), ..self }
        } else {
            self
        }
    }

    pub(super) fn fresh_at(self, window: Micros) -> Timestamp {
        let ends = match (self.current, self.previous) {
            (0, 0) => return Timestamp::EPOCH,
            (0, _) => 1,
            _ => 2,
        };
        Timestamp::from_micros(self.window.saturating_add(ends).saturating_mul(window.get()))
    }
}

pub(super) fn fit(quota: &Quota, ticks: Ticks, pair: Pair, cost: u64, now: Timestamp) -> Fit {
    let limit = quota.requests;
    if pair.current + overlap(ticks, pair, elapsed(quota, ticks, now)) + cost <= limit {
        return Fit::NOW;
    }
    let in_window = now.as_micros() % quota.window.get();
    // Room in this window once enough of the previous one has slid out …
    if let Some(room @ 1..) = limit.checked_sub(pair.current + cost) {
        let needed = slid_out(ticks, room, pair.previous);
        if needed < ticks.per_window {
            return Fit::After(Micros::new(needed * ticks.micros - in_window));
        }
    }
    // … else in the next one, where the current count is the previous.
    let needed = slid_out(ticks, limit - cost, pair.current);
    let in_next = (needed * ticks.micros).min(quota.window.get());
    Fit::After(Micros::new(quota.window.get() - in_window + in_next))
}

pub(super) fn gauge(quota: &Quota, ticks: Ticks, pair: Pair, now: Timestamp) -> Gauge {
    let used = pair.current + overlap(ticks, pair, elapsed(quota, ticks, now));
    let remaining = quota.requests.saturating_sub(used);
    Gauge {
        remaining,
        reset_after: pair.fresh_at(quota.window).since(now),
        next_after: next_after(quota, ticks, pair, remaining, now),
    }
}

/// Until enough of the previous window has slid out for one more, or this window ends: what is used at once counts
/// less from then on, so that one more may pass sooner than if it waited.
fn next_after(quota: &Quota, ticks: Ticks, pair: Pair, remaining: u64, now: Timestamp) -> Micros {
    let ends = Micros::new(quota.window.get() - now.as_micros() % quota.window.get());
    if remaining >= quota.requests {
        return ends;
    }
    match fit(quota, ticks, pair, remaining + 1, now) {
        Fit::After(wait) => wait.min(ends),
        Fit::Now { .. } | Fit::Never => ends,
    }
}

/// Whole ticks since the window began.
fn elapsed(quota: &Quota, ticks: Ticks, now: Timestamp) -> u64 {
    now.as_micros() % quota.window.get() / ticks.micros
}

/// The previous window's share, rounded up.
fn overlap(ticks: Ticks, pair: Pair, elapsed: u64) -> u64 {
    (pair.previous * (ticks.per_window - elapsed)).div_ceil(ticks.per_window)
}

/// The tick at which what is left of `count` is at most `room`.
fn slid_out(ticks: Ticks, room: u64, count: u64) -> u64 {
    match (room * ticks.per_window).checked_div(count) {
        Some(still) => ticks.per_window.saturating_sub(still),
        None => 0,
    }
}
