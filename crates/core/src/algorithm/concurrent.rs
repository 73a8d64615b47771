//! Concurrency limit: slots that are held until they are released, or until their hold time ends.
//!
//! This is a sliding window log whose window is the hold time. A held slot is an entry at the time
//! it was acquired or last renewed. Releasing a slot refunds that entry. Renewing moves the entry
//! to now; if it had expired it is added again, because the holder still uses the slot. While
//! holders renew in time, at most L slots are held. The slots of a crashed holder expire when their
//! hold time ends.
//!
//! It cannot be known when a slot will be released, so the reported wait is only a hint
//! ([`RETRY_HINT`]): the slot may be released earlier or later.
//!
//! If the clock goes back, slots acquired in what is now the future are moved to the present and
//! can no longer be found by their original time. Such a slot cannot be released; it expires when
//! its hold time ends. If it is renewed, it counts twice until then. The limit is then too strict
//! for one hold time, but never too lax.

use super::sliding_window_log::WindowLog;
use super::{Fit, Gauge};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// Retry time reported to a client that finds all slots in use.
pub const RETRY_HINT: Micros = Micros::from_secs(1);

/// Whether `cost` slots are free.
pub(super) fn fit(log: Option<&WindowLog>, quota: &Quota, cost: u64, now: Timestamp) -> Fit {
    // Do not use `gauge` here: its `remaining` is zero both at the limit and in debt.
    let used = log.map_or(0, |log| log.live_total(quota, now));
    if used + cost <= quota.requests { Fit::NOW } else { Fit::After(RETRY_HINT) }
}

/// The number of free slots, and when the last held slot expires if none is renewed.
pub(super) fn gauge(log: Option<&WindowLog>, quota: &Quota, now: Timestamp) -> Gauge {
    let gauge =
        log.map_or_else(|| WindowLog::default().gauge(quota, now), |log| log.gauge(quota, now));
    Gauge { next_after: Micros::ZERO, ..gauge }
}

/// The most entries in a log of slots: debt is capped at twice the limit, and each slot may have
/// its own entry. If a full log merged entries, as request logs do, a holder could not find its
/// slot.
pub(crate) const fn max_entries(limit: u64) -> u64 {
    2 * limit
}
