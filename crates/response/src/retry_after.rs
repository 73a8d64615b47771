//! How long a refused client has to wait: at least the time until its request can succeed, rounded
//! up to whole units.

use tidegate_core::decision::Retry;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::Decision;
use tidegate_rules::Facts;

/// The delay for a refusal that allows an immediate retry. Without one, refused clients would retry
/// in a tight loop.
const MIN_DELAY: Micros = Micros::from_secs(1);

/// A wait, including jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryAfter(Micros);

impl RetryAfter {
    /// The wait for a refusal; `None` if no wait would help.
    pub(super) fn from_retry(retry: Retry, jitter: Option<Micros>, random: u64) -> Option<Self> {
        let wait = match retry {
            Retry::Never => return None,
            Retry::Now => MIN_DELAY,
            Retry::After(wait) => wait,
        };
        let added = jitter.map_or(0, |cap| scale_jitter(cap, random));
        Some(Self(Micros::new(wait.get().saturating_add(added))))
    }

    /// Seconds for `Retry-After`. At least 1, because clients retry at once on 0.
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

/// Scales `random` evenly to the range from 0 to just below `span`.
fn scale_jitter(span: Micros, random: u64) -> u64 {
    let product = u128::from(span.get()) * u128::from(random);
    u64::try_from(product >> u64::BITS).unwrap_or_default()
}

/// A number derived from the client and the instant that it waits for. Clients that wait for the
/// same window get different numbers; a client that repeats its request gets the same one.
pub(super) fn jitter_seed(decision: &Decision, facts: &Facts<'_>) -> u64 {
    let numbers = decision.tightest().and_then(|(_, reading)| reading.numbers);
    let until = numbers.map_or(Timestamp::EPOCH, |numbers| match numbers.retry {
        Retry::After(wait) => numbers.now.plus(wait),
        Retry::Now | Retry::Never => numbers.now,
    });
    // Unkeyed: it does no harm if a client can compute its own jitter.
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
    fn retry_after_rounds_up_above_zero() {
        let delay = |retry| {
            RetryAfter::from_retry(retry, None, u64::MAX).map(|wait| (wait.secs(), wait.millis()))
        };
        assert_eq!(delay(Retry::After(Micros::new(900_001))), Some((1, 901)));
        assert_eq!(delay(Retry::After(Micros::new(1_000_001))), Some((2, 1_001)));
        assert_eq!(delay(Retry::After(Micros::ZERO)), Some((1, 1)));
        assert_eq!(delay(Retry::Now), Some((1, 1_000)));
        assert_eq!(delay(Retry::Never), None);
    }

    proptest! {
        #[test]
        fn jitter_only_adds_below_cap(
            wait in 0_u64..=1 << 60,
            cap in 1_u64..=1 << 60,
            random: u64,
        ) {
            let retry = Retry::After(Micros::new(wait));
            let cap_micros = Some(Micros::new(cap));
            let Some(RetryAfter(delay)) = RetryAfter::from_retry(retry, cap_micros, random) else {
                return Err(TestCaseError::fail("`Retry::After` yields a delay"));
            };
            prop_assert!((wait..wait + cap).contains(&delay.get()), "{wait} {cap} {delay:?}");
            prop_assert!(RetryAfter(delay).secs() >= 1 && RetryAfter(delay).millis() >= 1);
            prop_assert!(u128::from(RetryAfter(delay).secs()) * 1_000_000 >= u128::from(wait));
            prop_assert!(u128::from(RetryAfter(delay).millis()) * 1_000 >= u128::from(wait));
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
