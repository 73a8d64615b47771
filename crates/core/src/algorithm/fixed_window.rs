//! Fixed window: a count that starts anew at each multiple of the window since the epoch.
//!
//! A(W) ≤ 2L: the whole limit may pass at the end of one window and again at the start of the next.
//! Debt dies with its window.

use super::{Fit, Gauge, Tally};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// The requests of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number of the window since the epoch.
    pub window: u64,
    /// What was admitted in it.
    pub count: u64,
}

impl Count {
    /// The count of the window that `now` lies in. A count that lies ahead is taken as now's.
    pub(super) fn at(tally: Option<&Tally>, quota: &Quota, now: Timestamp) -> Self {
        let window = now.as_micros() / quota.window.get();
        match tally {
            Some(Tally::Fixed(kept)) if kept.window >= window => Self { window, ..*kept },
            _ => Self { window, count: 0 },
        }
    }

    pub(super) fn plus(self, quota: &Quota, cost: u64) -> Self {
        // Debt ends at one more window, unless a lowered quota has left more.
        let most = (2 * quota.requests).max(self.count);
        Self { count: self.count.saturating_add(cost).min(most), ..self }
    }

    pub(super) fn minus(self, quota: &Quota, cost: u64, charged_at: Timestamp) -> Self {
        if charged_at.as_micros() / quota.window.get() != self.window {
            return self;
        }
        Self { count: self.count.saturating_sub(cost), ..self }
    }

    pub(super) fn fresh_at(self, window: Micros) -> Timestamp {
        if self.count == 0 {
            return Timestamp::EPOCH;
        }
        Timestamp::from_micros(self.window.saturating_add(1).saturating_mul(window.get()))
    }
}

pub(super) fn fit(quota: &Quota, count: Count, cost: u64, now: Timestamp) -> Fit {
    if count.count + cost <= quota.requests {
        return Fit::NOW;
    }
    Fit::After(until_next(quota, now))
}

pub(super) fn gauge(quota: &Quota, count: Count, now: Timestamp) -> Gauge {
    Gauge {
        remaining: quota.requests.saturating_sub(count.count),
        reset_after: if count.count == 0 { Micros::ZERO } else { until_next(quota, now) },
        next_after: until_next(quota, now),
    }
}

fn until_next(quota: &Quota, now: Timestamp) -> Micros {
    let window = quota.window.get();
    Micros::new(window - now.as_micros() % window)
}
