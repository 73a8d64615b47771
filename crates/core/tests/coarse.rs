//! Coarsened units: core lies between the definition and a definition that is 1 ppm stricter. It
//! admits nothing that the former refuses, and refuses nothing that the latter admits.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::algorithm::{Fit, State};
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::{Quota, Ticks, Units};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::history::{CounterHistory, CounterStep, StepAction, histories};
use tidegate_testkit::oracle::{ExactRatio, Oracle};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;

const MILLION: i128 = 1_000_000;

struct CoarseFixture {
    policy: Policy,
    state: Option<State>,
    exact: Oracle,
    stricter: Oracle,
    now: Timestamp,
    last: Reading,
}

impl CoarseFixture {
    fn new(policy: Policy, now: Timestamp) -> Self {
        let (algorithm, quota) = (policy.algorithm(), policy.quota());
        let rate = ExactRatio::new(
            i128::from(quota.requests) * (MILLION - 1),
            i128::from(quota.window.get()) * MILLION,
        );
        let stricter =
            Oracle::with_stricter_rate(algorithm, quota, rate, ExactRatio::new(1, MILLION));
        let last = Reading { remaining: policy.limit(), now, ..Reading::default() };
        Self { policy, state: None, exact: Oracle::new(algorithm, quota), stricter, now, last }
    }

    /// Applies a step, except refunds: a bucket that drains more slowly refunds less.
    fn apply_step(&mut self, step: CounterStep) -> Result<(), TestCaseError> {
        let now = step.time_step.advance(&self.policy, &self.last, self.now);
        self.now = now;
        let cost = step.cost.resolve(&self.policy, &self.last);
        let at = i128::from(now.as_micros());
        let fit = self.policy.fit(self.state.as_ref(), cost, now);
        self.check_between_oracles(fit, cost, at)?;
        if fit.is_now() || matches!(step.action, StepAction::Force) {
            self.policy.charge(&mut self.state, cost, now);
            self.exact.charge(cost, now);
            self.stricter.charge(cost, now);
        }
        let left = self.policy.gauge(self.state.as_ref(), now);
        prop_assert!(left.remaining == 0 || self.exact.fits(left.remaining, at));
        prop_assert!(!self.stricter.fits(left.remaining + 1, at));
        let (reset, zero) = (i128::from(left.reset_after.get()), ExactRatio::from_integer(0));
        prop_assert_eq!(self.exact.used(at + reset), zero, "unused after `reset_after`");
        prop_assert!(
            reset == 0 || self.stricter.used(at + reset - 1) > zero,
            "`reset_after` is more than 1 ppm too long"
        );
        let retry = if let Fit::After(wait) = fit { Retry::After(wait) } else { Retry::Now };
        let (remaining, reset_after) = (left.remaining, left.reset_after);
        self.last = Reading { remaining, reset_after, retry, now, ..self.last };
        Ok(())
    }

    fn check_between_oracles(&self, fit: Fit, cost: u64, at: i128) -> Result<(), TestCaseError> {
        match fit {
            Fit::Never => prop_assert!(cost > self.policy.limit()),
            Fit::Now { .. } => prop_assert!(self.exact.fits(cost, at), "admitted too much"),
            Fit::After(wait) => {
                let wait = i128::from(wait.get());
                prop_assert!(!self.stricter.fits(cost, at), "more than 1 ppm too strict");
                prop_assert!(self.exact.fits(cost, at + wait), "the wait is sound by definition");
                prop_assert!(
                    !self.stricter.fits(cost, at + wait - 1),
                    "the wait is more than 1 ppm too long"
                );
                for (after, passes) in [(wait, true), (wait - 1, false)] {
                    let then = Timestamp::from_micros(u64::try_from(at + after).unwrap());
                    let fits = self.policy.fit(self.state.as_ref(), cost, then).is_now();
                    prop_assert_eq!(
                        fits,
                        passes,
                        "the wait is sound and tight by core's own answer"
                    );
                }
            }
        }
        Ok(())
    }
}

fn check_coarse_error(name: &str, algorithm: Algorithm) {
    let strategy = (quotas::coarse_policies(algorithm), histories(16));
    check_property(name, cases() / 2, &strategy, |(policy, CounterHistory { start, steps })| {
        let mut fixture = CoarseFixture::new(policy, start);
        steps.iter().try_for_each(|step| fixture.apply_step(*step))
    });
}

#[test]
fn coarse_bucket_error_is_within_millionth() {
    check_coarse_error("coarse_bucket", Algorithm::TokenBucket);
}

#[test]
fn coarse_queue_error_is_within_millionth() {
    check_coarse_error("coarse_queue", Algorithm::LeakyBucket(LeakMode::Queue));
}

#[test]
fn coarse_counter_error_is_within_millionth() {
    check_coarse_error("coarse_counter", Algorithm::SlidingWindowCounter);
}

/// Quotas of every magnitude, most of which are coarsened or rejected.
fn arbitrary_quotas() -> impl Strategy<Value = Quota> {
    let sized = || (any::<u64>(), 0_u32..64).prop_map(|(raw, bits)| (raw >> bits).max(1));
    (sized(), sized(), proptest::option::of(sized())).prop_map(|(requests, window, burst)| Quota {
        requests,
        window: Micros::new(window),
        burst,
    })
}

#[test]
fn accepted_bucket_rate_is_within_millionth() {
    check_property("rate_error", cases(), &arbitrary_quotas(), |quota| {
        let Ok(policy) = Policy::new(Algorithm::TokenBucket, quota) else { return Ok(()) };
        let units = Units::for_quota(policy.quota()).unwrap();
        let nominal = u128::from(units.per_request) * u128::from(quota.requests);
        let actual = u128::from(units.per_micro) * u128::from(quota.window.get());
        prop_assert!(actual <= nominal, "faster than the quota: {:?}", units);
        let ppm = (nominal - actual).saturating_mul(1_000_000) / nominal;
        prop_assert!((nominal - actual) * 1_000_000 <= nominal, "{} ppm: {:?}", ppm, units);
        prop_assert!(
            units.ceiling <= 1 << 52,
            "not exactly representable as a double: {:?}",
            units
        );
        Ok(())
    });
}

#[test]
fn accepted_counter_weight_is_within_millionth() {
    let strategy = (arbitrary_quotas(), any::<u64>());
    check_property("weight_error", cases(), &strategy, |(quota, at)| {
        let quota = Quota { burst: None, ..quota };
        let Ok(policy) = Policy::new(Algorithm::SlidingWindowCounter, quota) else { return Ok(()) };
        let ticks = Ticks::for_quota(policy.quota()).unwrap();
        let window = i128::from(quota.window.get());
        // Rounding down has the largest error at the last microsecond of a tick.
        let elapsed = i128::from(at) % window;
        let tick = i128::from(ticks.micros);
        for elapsed in [elapsed, (elapsed / tick * tick + tick - 1).min(window - 1)] {
            let per_window = i128::from(ticks.per_window);
            let weight = ExactRatio::new(per_window - elapsed / tick, per_window);
            let over = weight - ExactRatio::new(window - elapsed, window);
            prop_assert!(over >= ExactRatio::from_integer(0), "weight too small: {:?}", ticks);
            prop_assert!(
                over <= ExactRatio::new(1, MILLION),
                "weight too large by {}: {:?}",
                over,
                ticks
            );
        }
        let twice = u128::from(quota.requests) * 2 * u128::from(ticks.per_window);
        prop_assert!(twice <= 1 << 53, "not exactly representable as a double: {:?}", ticks);
        Ok(())
    });
}

/// The last tick reaches beyond the end of the window, when the cost fits.
#[test]
fn coarse_counter_waits_at_most_for_its_window() {
    let (requests, window) = (2_000_000_000, Micros::from_secs(3_600));
    let policy =
        Policy::new(Algorithm::SlidingWindowCounter, Quota::new(requests, window)).unwrap();
    assert!(!quotas::is_exact(&policy));
    let first = Timestamp::from_micros(window.get() * 400_000);
    let (mut state, second) = (None, first.plus(window));
    policy.charge(&mut state, requests, first);
    // What is left is less than what one tick of the first window gives back.
    policy.charge(&mut state, requests - 6, second);
    assert_eq!(policy.fit(state.as_ref(), 1, second), Fit::After(window));
}
