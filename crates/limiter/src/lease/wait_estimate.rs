//! Estimates when a request fits a counter, from what the store last answered about it.

use tidegate_core::decision::Reading;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::time::Micros;

/// How long after a reading a request with this cost passes at the store, if nothing else is
/// charged: never too short, but not always as short as possible.
pub(crate) fn wait_until_fits(reading: &Reading, policy: &Policy, cost: u64) -> Micros {
    let Reading { remaining, reset_after, next_after, now, .. } = *reading;
    if cost <= remaining {
        return Micros::ZERO;
    }
    let one_more = cost == remaining + 1;
    match policy.meter() {
        Meter::Bucket { units, .. } => {
            let used = reset_after.get().saturating_mul(units.per_micro);
            let level = used.saturating_add(cost.saturating_mul(units.per_request));
            units.drain_time(level.saturating_sub(units.capacity).min(units.ceiling))
        }
        Meter::Fixed => next_after,
        Meter::Log | Meter::Slots if one_more => next_after,
        Meter::Log | Meter::Slots => reset_after,
        Meter::Counter(ticks) => {
            let window = policy.quota().window.get();
            let to_end = window - now.as_micros() % window;
            if one_more && next_after.get() < to_end {
                return next_after;
            }
            // In the next window, a full count of this one has made room for the cost after
            // cost/L of the window.
            let decay = u128::from(window) * u128::from(cost);
            let decay = decay.div_ceil(policy.quota().requests.into());
            let decay = u64::try_from(decay).unwrap_or(u64::MAX).saturating_add(ticks.micros);
            Micros::new(to_end.saturating_add(decay)).min(reset_after)
        }
    }
}
