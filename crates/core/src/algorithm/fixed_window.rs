//! Fixed window: a count that restarts at each multiple of the window since the epoch.
//!
//! A(W) ≤ 2L: the whole limit may pass at the end of one window and again at the start of the next.
//! Debt ends with its window.

use super::{Fit, Gauge, Tally};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// The count of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowCount {
    /// The number of the window since the epoch.
    pub window: u64,
    /// The total cost admitted in it.
    pub count: u64,
}

impl WindowCount {
    /// The count of the window that contains `now`. The count of a future window (the clock went
    /// back) is treated as the current window's.
    pub(super) fn at_instant(tally: Option<&Tally>, quota: &Quota, now: Timestamp) -> Self {
        let window = now.as_micros() / quota.window.get();
        match tally {
            Some(Tally::Fixed(stored)) if stored.window >= window => Self { window, ..*stored },
            _ => Self { window, count: 0 },
        }
    }

    pub(super) fn plus(self, quota: &Quota, cost: u64) -> Self {
        // Debt is capped at one window's limit. A higher count from before the quota was lowered
        // is kept.
        let max_count = (2 * quota.requests).max(self.count);
        Self { count: self.count.saturating_add(cost).min(max_count), ..self }
    }

    pub(super) fn minus(self, quota: &Quota, cost: u64, charged_at: Timestamp) -> Self {
        if charged_at.as_micros() / quota.window.get() != self.window {
            return self;
        }
        Self { count: self.count.saturating_sub(cost), ..self }
    }

    pub(super) fn expires_at(self, window: Micros) -> Timestamp {
        if self.count == 0 {
            return Timestamp::EPOCH;
        }
        Timestamp::from_micros(self.window.saturating_add(1).saturating_mul(window.get()))
    }
}

pub(super) fn fit(quota: &Quota, count: WindowCount, cost: u64, now: Timestamp) -> Fit {
    if count.count + cost <= quota.requests {
        return Fit::NOW;
    }
    Fit::After(time_to_next_window(quota, now))
}

pub(super) fn gauge(quota: &Quota, count: WindowCount, now: Timestamp) -> Gauge {
    Gauge {
        remaining: quota.requests.saturating_sub(count.count),
        reset_after: if count.count == 0 { Micros::ZERO } else { time_to_next_window(quota, now) },
        next_after: time_to_next_window(quota, now),
    }
}

fn time_to_next_window(quota: &Quota, now: Timestamp) -> Micros {
    let window = quota.window.get();
    Micros::new(window - now.as_micros() % window)
}
