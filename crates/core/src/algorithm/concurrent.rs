//! Concurrency: slots that are held until they are released, and that lapse when nobody renews them.
//!
//! A sliding window log whose window is the lease: a held slot is an entry at the time it was taken or
//! last renewed. Releasing is a refund of that time; renewing moves the entry to now, and puts it back
//! if it had lapsed, because its holder still holds it. While holders renew in time no more than L
//! slots are held; those of a holder that died lapse when their lease ends.
//!
//! When a slot will be free nobody can know, so the wait that is told is a hint ([`COME_BACK`]): neither
//! sound nor tight. After a clock that went back, a slot that was taken ahead of it counts from now and
//! is no longer found by its time: it lapses with its lease, and counts twice until then if it is
//! renewed. That is too strict for one lease, and never too lax.

use super::sliding_window_log::Log;
use super::{Fit, Gauge};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// How long a client that finds all slots taken is asked to wait.
pub const COME_BACK: Micros = Micros::from_secs(1);

/// Whether so many slots are free.
pub(super) fn fit(log: Option<&Log>, quota: &Quota, cost: u64, now: Timestamp) -> Fit {
    // Not by what is left, which tells a limit that is reached from one in debt no more.
    let used = log.map_or(0, |log| log.live_total(quota, now));
    if used + cost <= quota.requests { Fit::NOW } else { Fit::After(COME_BACK) }
}

/// What is free, and when the last slot lapses if none is renewed.
pub(super) fn gauge(log: Option<&Log>, quota: &Quota, now: Timestamp) -> Gauge {
    let left = log.map_or_else(|| Log::default().gauge(quota, now), |log| log.gauge(quota, now));
    Gauge { next_after: Micros::ZERO, ..left }
}

/// The most entries of a log of slots: debt ends at twice the limit, and a slot has an entry of its
/// own. Were a full log to merge entries, as others do, a holder would no longer find its slot.
pub(crate) const fn most_entries(limit: u64) -> u64 {
    2 * limit
}
