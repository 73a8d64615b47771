//! How long a refused caller is told to wait: at least as long as it has to, in whole units.

use tidegate_core::decision::Retry;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::Decision;
use tidegate_rules::Facts;

/// For a refusal that names no wait: not at once, or refused callers would hammer.
const MIN_DELAY: Micros = Micros::from_secs(1);

/// A wait, jitter included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryDelay(Micros);

impl RetryDelay {
    /// What a refusal asks for; none if waiting does not help.
    pub(super) fn from_retry(retry: Retry, jitter: Option<Micros>, random: u64) -> Option<Self> {
        let wait = match retry {
            Retry::Never => return None,
            Retry::Now => MIN_DELAY,
            Retry::After(wait) => wait,
        };
        let added = jitter.map_or(0, |cap| scale_jitter(cap, random));
        Some(Self(Micros::new(wait.get().saturating_add(added))))
    }

    /// As in `Retry-After`, which must not say 0 of a refusal: clients would come back at once.
    pub(super) const fn secs(self) -> u64 {
        at_least_one(self.0.as_secs_ceil())
    }

    pub(super) const fn millis(self) -> u64 {
        at_least_one(self.0.as_millis_ceil())
    }
}

const fn at_least_one(count: u64) -> u64 {
    if count == 0 { 1 } else { count }
}

/// A part of a span, evenly spread from nothing to just below all of it.
fn scale_jitter(span: Micros, random: u64) -> u64 {
    let product = u128::from(span.get()) * u128::from(random);
    u64::try_from(product >> u64::BITS).unwrap_or_default()
}

/// A number that depends on who waits and for which instant. Callers that wait for the same window
/// get different ones, a caller that asks again on the way gets the same.
pub(super) fn jitter_seed(decision: &Decision, facts: &Facts<'_>) -> u64 {
    let numbers = decision.tightest().and_then(|(_, reading)| reading.numbers);
    let until = numbers.map_or(Timestamp::EPOCH, |numbers| match numbers.retry {
        Retry::After(wait) => numbers.now.plus(wait),
        Retry::Now | Retry::Never => numbers.now,
    });
    // No secret: it is no harm if somebody can tell by how much his wait was stretched.
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(&until.as_micros().to_le_bytes());
    for (name, value) in facts.iter() {
        hasher.write_part(name.as_bytes());
        hasher.write_part(value.as_bytes());
    }
    let Fingerprint { hi, .. } = hasher.finish();
    hi
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn retry_delay_rounds_up_above_zero() {
        let told = |retry| {
            RetryDelay::from_retry(retry, None, u64::MAX).map(|wait| (wait.secs(), wait.millis()))
        };
        assert_eq!(told(Retry::After(Micros::new(900_001))), Some((1, 901)));
        assert_eq!(told(Retry::After(Micros::new(1_000_001))), Some((2, 1_001)));
        assert_eq!(told(Retry::After(Micros::ZERO)), Some((1, 1)));
        assert_eq!(told(Retry::Now), Some((1, 1_000)));
        assert_eq!(told(Retry::Never), None);
    }

    proptest! {
        #[test]
        fn jitter_only_adds_below_cap(
            wait in 0_u64..=1 << 60,
            cap in 1_u64..=1 << 60,
            random: u64,
        ) {
            let retry = Retry::After(Micros::new(wait));
            let Some(RetryDelay(told)) = RetryDelay::from_retry(retry, Some(Micros::new(cap)), random) else {
                return Err(TestCaseError::fail("a wait has an end"));
            };
            prop_assert!((wait..wait + cap).contains(&told.get()), "{wait} {cap} {told:?}");
            prop_assert!(RetryDelay(told).secs() >= 1 && RetryDelay(told).millis() >= 1);
            prop_assert!(u128::from(RetryDelay(told).secs()) * 1_000_000 >= u128::from(wait));
            prop_assert!(u128::from(RetryDelay(told).millis()) * 1_000 >= u128::from(wait));
        }
    }

    #[test]
    fn jitter_spans_zero_to_cap() {
        let cap = Micros::from_secs(10);
        assert_eq!(scale_jitter(cap, 0), 0);
        assert_eq!(scale_jitter(cap, u64::MAX), cap.get() - 1);
        assert_eq!(scale_jitter(cap, 1 << 63), cap.get() / 2);
    }
}
