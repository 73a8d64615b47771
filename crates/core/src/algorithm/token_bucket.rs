//! Token bucket: admits while what is used, drained lazily, plus the cost stays within the burst.
//!
//! A(T) ≤ B + rT. It keeps what is used, not what is left, so that an absent state equals a full
//! bucket and a raised burst makes no key fuller than a new one.

use super::{Fit, Gauge};
use crate::quota::Units;
use crate::time::Timestamp;

/// How full a bucket was, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Units in use.
    pub used: u64,
    /// At this instant.
    pub at: Timestamp,
}

impl Level {
    /// A bucket with nothing used.
    #[must_use]
    pub const fn empty(at: Timestamp) -> Self {
        Self { used: 0, at }
    }

    /// The level at `now`. Time that went back drains nothing.
    #[inline]
    #[must_use]
    pub fn drained(self, per_micro: u64, now: Timestamp) -> Self {
        let gone = now.since(self.at).get().saturating_mul(per_micro);
        Self { used: self.used.saturating_sub(gone), at: now }
    }

    /// The level with no more debt than these units allow: a burst may have been lowered since.
    #[inline]
    pub(crate) fn capped(self, units: &Units) -> Self {
        Self { used: self.used.min(units.ceiling), ..self }
    }

    /// The level at `now` on the scale it was written with, its debt capped when the present burst
    /// came into force.
    #[inline]
    pub(crate) fn settled(self, units: &Units, since: Timestamp, now: Timestamp) -> Self {
        let level =
            if self.at < since { self.drained(units.per_micro, since.min(now)) } else { self };
        level.capped(units).drained(units.per_micro, now)
    }

    /// The level with `cost` more requests, debt capped.
    #[inline]
    pub(crate) fn plus(self, units: &Units, cost: u64) -> Self {
        let more = cost.saturating_mul(units.per_request);
        Self { used: self.used.saturating_add(more), ..self }.capped(units)
    }

    /// The level with `cost` requests given back, less what has drained since they were charged:
    /// that part is back already, and giving it twice would over-admit.
    pub(super) fn minus(
        self,
        units: &Units,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let drained = now.since(charged_at).get().saturating_mul(units.per_micro);
        let back = cost.saturating_mul(units.per_request).saturating_sub(drained);
        Self { used: self.used.saturating_sub(back), ..self }
    }

    /// The level on another scale: drained at the old rate until the new one came into force, then
    /// told in the new units, part requests rounded up. The new rate is never applied backwards.
    pub(super) fn carried(
        self,
        old_per_micro: u64,
        old_per_request: u64,
        units: &Units,
        since: Timestamp,
        now: Timestamp,
    ) -> Self {
        let at = self.at.max(since).min(now);
        let requests = self.drained(old_per_micro, at).used.div_ceil(old_per_request.max(1));
        Self { used: requests.saturating_mul(units.per_request), at }.capped(units)
    }
}

/// Whether `cost` fits on top of a drained level.
#[inline]
pub(crate) fn fit(units: &Units, level: Level, cost: u64) -> Fit {
    let asked = cost.saturating_mul(units.per_request);
    if asked > units.capacity {
        return Fit::Never;
    }
    let over = (level.used + asked).saturating_sub(units.capacity);
    if over == 0 { Fit::NOW } else { Fit::After(units.drain_time(over)) }
}

/// What a drained level leaves.
#[inline]
pub(crate) fn gauge(units: &Units, level: Level) -> Gauge {
    let remaining = units.room_above(level.used);
    // What has to drain until one more fits.
    let missing = (remaining + 1) * units.per_request + level.used - units.capacity;
    let (reset_after, next_after) = (units.drain_time(level.used), units.drain_time(missing));
    Gauge { remaining, reset_after, next_after }
}
