//! Leaky bucket: the inverse view of a token bucket; with a queue, a traffic shaper.
//!
//! When policing, it decides exactly as [`token_bucket`] does. When queueing, it admits the same
//! requests but delays each until the earlier ones have leaked: departures ≤ c_max + rT.

use super::token_bucket::BucketLevel;
use super::{Fit, token_bucket};
use crate::quota::Units;

/// Whether `cost` fits into the queue, and how long the requests ahead of it take to leave.
pub(super) fn fit(units: &Units, level: BucketLevel, cost: u64) -> Fit {
    match token_bucket::fit(units, level, cost) {
        Fit::Now { .. } => Fit::Now { delay: units.drain_time(level.used) },
        refused => refused,
    }
}
