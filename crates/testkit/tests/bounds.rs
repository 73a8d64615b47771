//! I1: in every interval of every history no more is admitted than the algorithm's bound, whether its
//! units are exact or coarsened.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::algorithm::Fit;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::{Algorithm, Leak, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::bound::{self, Admitted};
use tidegate_testkit::history::{History, charges_only};
use tidegate_testkit::property::{cases, holds};
use tidegate_testkit::quotas;

fn admitted(policy: &Policy, history: &History) -> Vec<Admitted> {
    let (mut state, mut now) = (None, history.start);
    let mut last = Reading { remaining: policy.limit(), now, ..Reading::default() };
    let mut admitted = Vec::new();
    for step in &history.moves {
        now = step.hop.from(policy, &last, now);
        let cost = step.cost.number(policy, &last);
        last.retry = match policy.fit(state.as_ref(), cost, now) {
            Fit::Now { delay } => {
                policy.charge(&mut state, cost, now);
                admitted.push(Admitted { at: now, cost, delay });
                Retry::Now
            }
            Fit::After(wait) => Retry::After(wait),
            Fit::Never => Retry::Never,
        };
        let left = policy.gauge(state.as_ref(), now);
        last = Reading { remaining: left.remaining, reset_after: left.reset_after, now, ..last };
    }
    admitted
}

fn stays_within_its_bound(name: &str, algorithm: Algorithm) {
    let strategy = (quotas::any_policy(algorithm), charges_only(40));
    holds(name, cases(), &strategy, |(policy, history)| {
        bound::check(&policy, &admitted(&policy, &history)).map_err(TestCaseError::fail)
    });
}

#[test]
fn token_bucket_admits_at_most_its_burst_and_the_rate() {
    stays_within_its_bound("bound_token_bucket", Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_policing_admits_at_most_its_burst_and_the_rate() {
    stays_within_its_bound("bound_leaky_police", Algorithm::LeakyBucket(Leak::Police));
}

#[test]
fn leaky_bucket_queueing_lets_leave_at_most_the_rate_in_order() {
    stays_within_its_bound("bound_leaky_queue", Algorithm::LeakyBucket(Leak::Queue));
}

#[test]
fn fixed_window_admits_at_most_twice_its_limit_in_a_window() {
    stays_within_its_bound("bound_fixed_window", Algorithm::FixedWindow);
}

#[test]
fn sliding_window_log_admits_at_most_its_limit_in_any_window() {
    stays_within_its_bound("bound_sliding_log", Algorithm::SlidingWindowLog);
}

#[test]
fn no_more_slots_are_taken_than_there_are_in_any_lease() {
    stays_within_its_bound("bound_concurrent", Algorithm::Concurrent);
}

#[test]
fn sliding_window_counter_admits_at_most_its_share_of_twice_its_limit() {
    stays_within_its_bound("bound_sliding_counter", Algorithm::SlidingWindowCounter);
}

#[test]
fn coarsened_units_stay_within_the_same_bounds() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindowCounter] {
        let strategy = (quotas::coarse(algorithm), charges_only(40));
        holds("bound_coarse", cases() / 2, &strategy, |(policy, history)| {
            prop_assert!(!quotas::is_exact(&policy));
            bound::check(&policy, &admitted(&policy, &history)).map_err(TestCaseError::fail)
        });
    }
}

/// The documented leak: the whole limit at the end of one window and again at the start of the next.
#[test]
fn fixed_window_lets_twice_its_limit_pass_within_less_than_a_window() {
    let policy =
        Policy::new(Algorithm::FixedWindow, Quota::new(100, Micros::from_secs(5))).unwrap();
    let (mut state, mut passed) = (None, 0);
    let boundary = Timestamp::from_micros(1_700_000_000_000_000);
    for at in [boundary.as_micros() - 60_000, boundary.as_micros() + 60_000] {
        for _ in 0..150 {
            if policy.fit(state.as_ref(), 1, Timestamp::from_micros(at)).is_now() {
                policy.charge(&mut state, 1, Timestamp::from_micros(at));
                passed += 1;
            }
        }
    }
    assert_eq!(passed, 200, "in 0.12 s at 100 per 5 s");
}
