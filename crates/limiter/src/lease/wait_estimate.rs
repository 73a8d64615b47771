//! Estimates when a request fits a counter, from what the store last answered about it.

use tidegate_core::decision::Reading;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::time::Micros;

/// Whether a counter may have been charged beyond its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterDebt {
    /// No: it had room before the reading.
    None,
    /// It may be.
    Possible,
}

/// How long after a reading a request with this cost passes at the store, if nothing else is
/// charged: never too short, but not always as short as possible.
pub(crate) fn wait_until_fits(
    reading: &Reading,
    policy: &Policy,
    cost: u64,
    debt: CounterDebt,
) -> Micros {
    let Reading { remaining, reset_after, next_after, now, .. } = *reading;
    if cost <= remaining {
        return Micros::ZERO;
    }
    // In debt, the next unit to become available pays the debt first.
    let one_more = cost == remaining + 1 && debt == CounterDebt::None;
    match policy.meter() {
        Meter::Bucket { units, .. } => {
            let used = reset_after.get().saturating_mul(units.per_micro);
            let level = used.saturating_add(cost.saturating_mul(units.per_request));
            units.drain_time(level.saturating_sub(units.capacity).min(units.ceiling))
        }
        Meter::Fixed => next_after,
        Meter::Log | Meter::Slots if one_more => next_after,
        Meter::Log | Meter::Slots => reset_after,
        // In debt, the next window may have no room either.
        Meter::Counter(_) if debt == CounterDebt::Possible => reset_after,
        Meter::Counter(ticks) => {
            let window = policy.quota().window.get();
            let to_end = window - now.as_micros() % window;
            if one_more && next_after.get() < to_end {
                return next_after;
            }
            // In the next window, a full count of this one has made room for the cost after
            // cost/L of the window.
            let decayed = u128::from(ticks.per_window) * u128::from(cost);
            let decayed = decayed.div_ceil(policy.quota().requests.into());
            let decay = u64::try_from(decayed).unwrap_or(u64::MAX).saturating_mul(ticks.micros);
            Micros::new(to_end.saturating_add(decay)).min(reset_after)
        }
    }
}
