//! Leaky bucket: a token bucket seen from the other side, and with a queue a shaper.
//!
//! Policing, it decides as [`token_bucket`] does. Queueing, it admits the same
//! requests but holds each until those before it have leaked: departures ≤ c_max + rT.

use super::token_bucket::Level;
use super::{Fit, token_bucket};
use crate::quota::Units;

/// Whether `cost` fits into the queue, and how long those before it take to leave.
pub(super) fn fit(units: &Units, level: Level, cost: u64) -> Fit {
    match token_bucket::fit(units, level, cost) {
        Fit::Now { .. } => Fit::Now { delay: units.drain_time(level.used) },
        refused => refused,
    }
}
