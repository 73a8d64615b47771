//! Token bucket: admits a request if the used amount, drained lazily, plus the cost is within the
//! burst.
//!
//! A(T) ≤ B + rT. The state is the used amount, not the remaining one. An absent state is then a
//! full bucket, and after the burst is raised no key has more tokens than a new one.

use super::{Fit, Gauge};
use crate::quota::Units;
use crate::time::Timestamp;

/// The used amount of a bucket at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLevel {
    /// Units in use.
    pub used: u64,
    /// The instant.
    pub at: Timestamp,
}

impl BucketLevel {
    /// An unused bucket.
    #[must_use]
    pub const fn empty(at: Timestamp) -> Self {
        Self { used: 0, at }
    }

    /// The level at `now`. If the clock went back, nothing drains.
    #[inline]
    #[must_use]
    pub fn drained(self, per_micro: u64, now: Timestamp) -> Self {
        let drained = now.since(self.at).get().saturating_mul(per_micro);
        Self { used: self.used.saturating_sub(drained), at: now }
    }

    /// The level, with its debt capped to what these units allow. The burst may have been lowered.
    #[inline]
    pub(crate) fn capped(self, units: &Units) -> Self {
        Self { used: self.used.min(units.ceiling), ..self }
    }

    /// The level at `now`, on the scale it was written on. Debt is capped at the instant `since`,
    /// when the present burst took effect.
    #[inline]
    pub(crate) fn settled(self, units: &Units, since: Timestamp, now: Timestamp) -> Self {
        let level =
            if self.at < since { self.drained(units.per_micro, since.min(now)) } else { self };
        level.capped(units).drained(units.per_micro, now)
    }

    /// The level with `cost` added and debt capped.
    #[inline]
    pub(crate) fn plus(self, units: &Units, cost: u64) -> Self {
        let more = cost.saturating_mul(units.per_request);
        Self { used: self.used.saturating_add(more), ..self }.capped(units)
    }

    /// The level with `cost` refunded, less what has drained since it was charged. That part is
    /// available again already, and refunding it too would over-admit.
    pub(super) fn minus(
        self,
        units: &Units,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let drained = now.since(charged_at).get().saturating_mul(units.per_micro);
        let refunded = cost.saturating_mul(units.per_request).saturating_sub(drained);
        Self { used: self.used.saturating_sub(refunded), ..self }
    }

    /// Converts the level from an old scale to `units`. It drains at the old rate until `since`,
    /// when the new rate took effect, and is then converted, with part requests rounded up. The
    /// new rate never applies to the time before `since`.
    pub(super) fn converted(
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
pub(crate) fn fit(units: &Units, level: BucketLevel, cost: u64) -> Fit {
    let cost_units = cost.saturating_mul(units.per_request);
    if cost_units > units.capacity {
        return Fit::Never;
    }
    let excess = (level.used + cost_units).saturating_sub(units.capacity);
    if excess == 0 { Fit::NOW } else { Fit::After(units.drain_time(excess)) }
}

/// The remaining quota at a drained level.
#[inline]
pub(crate) fn gauge(units: &Units, level: BucketLevel) -> Gauge {
    let remaining = units.room_above(level.used);
    // Units that must drain until one more request fits.
    let missing = (remaining + 1) * units.per_request + level.used - units.capacity;
    let (reset_after, next_after) = (units.drain_time(level.used), units.drain_time(missing));
    Gauge { remaining, reset_after, next_after }
}
