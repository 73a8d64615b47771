//! Sliding window counter: the current window's count plus the overlapping share of the previous
//! window's count.
//!
//! A(T) ≤ L(1 + T/W) for T ≤ W. Only the previous window is weighted. If counts times microseconds
//! would exceed 2^53, the window is divided into coarser ticks. Elapsed ticks are rounded down and
//! ticks per window rounded up, so the weight is never too small.

use super::{Fit, Gauge, Tally};
use crate::quota::{Quota, Ticks};
use crate::time::{Micros, Timestamp};

/// The counts of a window and of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPair {
    /// The number of the current window since the epoch.
    pub window: u64,
    /// The total cost admitted in it.
    pub current: u64,
    /// The total cost admitted in the window before it.
    pub previous: u64,
}

impl WindowPair {
    /// The pair for the window that contains `now`. Counts of a future window (the clock went back)
    /// are treated as the current window's.
    pub(super) fn at_instant(
        tally: Option<&Tally>,
        quota: &Quota,
        ticks: Ticks,
        now: Timestamp,
    ) -> Self {
        let window = now.as_micros() / quota.window.get();
        let (current, previous) = match tally {
            Some(Tally::Counter(pair)) if pair.window > window => (pair.folded(quota), 0),
            Some(Tally::Counter(pair)) if pair.window == window => (pair.current, pair.previous),
            Some(Tally::Counter(pair)) if pair.window + 1 == window => (0, pair.current),
            _ => (0, 0),
        };
        // If the quota was lowered, a count may exceed the new debt cap. It is kept, because
        // lowering a quota must not refill the counter, but only up to where counts times ticks
        // are exact. It expires within two windows.
        let max_count = ticks.max_count();
        Self { window, current: current.min(max_count), previous: previous.min(max_count) }
    }

    /// Adds both counts as the current window's. When the clock goes back, it is not known how much
    /// of the previous window had already expired. Weighting it at another position in the window
    /// could refill the counter.
    fn folded(self, quota: &Quota) -> u64 {
        self.capped(quota, self.current.saturating_add(self.previous))
    }

    /// Caps debt at one window's limit. A higher count from before the quota was lowered is kept.
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

    pub(super) fn expires_at(self, window: Micros) -> Timestamp {
        let ends = match (self.current, self.previous) {
            (0, 0) => return Timestamp::EPOCH,
            (0, _) => 1,
            _ => 2,
        };
        Timestamp::from_micros(self.window.saturating_add(ends).saturating_mul(window.get()))
    }
}

pub(super) fn fit(quota: &Quota, ticks: Ticks, pair: WindowPair, cost: u64, now: Timestamp) -> Fit {
    let limit = quota.requests;
    if pair.current + weighted_previous(ticks, pair, elapsed_ticks(quota, ticks, now)) + cost
        <= limit
    {
        return Fit::NOW;
    }
    let in_window = now.as_micros() % quota.window.get();
    // There is room in this window once enough of the previous one has expired …
    if let Some(room @ 1..) = limit.checked_sub(pair.current + cost) {
        let needed = ticks_until_room(ticks, room, pair.previous);
        if needed < ticks.per_window {
            return Fit::After(Micros::new(needed * ticks.micros - in_window));
        }
    }
    // … or else in the next window, where the current count becomes the previous one.
    let needed = ticks_until_room(ticks, limit - cost, pair.current);
    let in_next = (needed * ticks.micros).min(quota.window.get());
    Fit::After(Micros::new(quota.window.get() - in_window + in_next))
}

pub(super) fn gauge(quota: &Quota, ticks: Ticks, pair: WindowPair, now: Timestamp) -> Gauge {
    let used = pair.current + weighted_previous(ticks, pair, elapsed_ticks(quota, ticks, now));
    let remaining = quota.requests.saturating_sub(used);
    Gauge {
        remaining,
        reset_after: pair.expires_at(quota.window).since(now),
        next_after: next_after(quota, ticks, pair, remaining, now),
    }
}

/// Time until enough of the previous window has expired for one more request, but at most until
/// this window ends. After that, usage made now is weighted less, so one more request may pass
/// sooner than [`fit`] reports for a client that waits.
fn next_after(
    quota: &Quota,
    ticks: Ticks,
    pair: WindowPair,
    remaining: u64,
    now: Timestamp,
) -> Micros {
    let ends = Micros::new(quota.window.get() - now.as_micros() % quota.window.get());
    if remaining >= quota.requests {
        return ends;
    }
    match fit(quota, ticks, pair, remaining + 1, now) {
        Fit::After(wait) => wait.min(ends),
        Fit::Now { .. } | Fit::Never => ends,
    }
}

/// Whole ticks elapsed since the window began.
fn elapsed_ticks(quota: &Quota, ticks: Ticks, now: Timestamp) -> u64 {
    now.as_micros() % quota.window.get() / ticks.micros
}

/// The overlapping share of the previous window's count, rounded up.
fn weighted_previous(ticks: Ticks, pair: WindowPair, elapsed: u64) -> u64 {
    (pair.previous * (ticks.per_window - elapsed)).div_ceil(ticks.per_window)
}

/// The tick at which the weighted share of `count` drops to `room` or less.
fn ticks_until_room(ticks: Ticks, room: u64, count: u64) -> u64 {
    match (room * ticks.per_window).checked_div(count) {
        Some(still) => ticks.per_window.saturating_sub(still),
        None => 0,
    }
}
