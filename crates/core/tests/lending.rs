//! Which limits are lent, how much of them and for how long, and what is worth returning.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::lending::{LeaseBound, LeaseTerms, LendingError, MIN_LEASE_TTL};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas::{self, ALL_ALGORITHMS};

const SECOND: Micros = Micros::from_secs(1);

/// An instant at the start of a window of any of the lengths used here.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn policy(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::new(algorithm, quota).unwrap()
}

fn lend(policy: &Policy, ttl: Micros, bound: LeaseBound) -> Result<Policy, LendingError> {
    policy.lending(LeaseTerms { ttl, bound })
}

fn plus(span: Micros, micros: u64) -> Micros {
    Micros::new(span.get().saturating_add(micros))
}

/// A smaller part would be safe too, but it would refuse requests for nothing.
fn check_largest_part(policy: &Policy, lent: &Policy, ttl: Micros) -> Result<(), TestCaseError> {
    let (whole, part) = (policy.quota(), lent.quota());
    let wide = u128::from;
    let (requests, window) = (wide(whole.requests), wide(whole.window.get()));
    let (longer, ttl) = (plus(whole.window, ttl.get()), wide(ttl.get()));
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
            let kept = wide(whole.burst() - part.burst());
            prop_assert!(kept * window >= requests * ttl && (kept - 1) * window < requests * ttl);
            prop_assert_eq!((part.requests, part.window), (whole.requests, whole.window));
        }
        Algorithm::SlidingWindowLog => {
            prop_assert_eq!(*part, Quota { window: longer, ..*whole });
        }
        Algorithm::SlidingWindowCounter => {
            let lent = wide(part.requests);
            prop_assert!(lent * (window + ttl) <= requests * window);
            prop_assert!((lent + 1) * (window + ttl) > requests * window);
            prop_assert_eq!(part.window, whole.window);
        }
        Algorithm::FixedWindow | Algorithm::Concurrent => prop_assert_eq!(part, whole),
    }
    Ok(())
}

/// The longest lease that an error names is accepted, and the next millisecond is not.
fn check_longest(policy: &Policy, max_ttl: Option<Micros>) -> Result<(), TestCaseError> {
    let exact = |ttl| lend(policy, ttl, LeaseBound::Exact);
    match max_ttl {
        Some(longest) => {
            prop_assert!(exact(longest).is_ok(), "{longest}");
            prop_assert!(exact(plus(longest, 1_000)).is_err(), "{longest}");
        }
        None => {
            let shortest = exact(MIN_LEASE_TTL);
            prop_assert!(matches!(shortest, Err(LendingError::NoRoom { .. })), "{shortest:?}");
        }
    }
    Ok(())
}

#[test]
fn largest_part_of_limit_is_lent() {
    for algorithm in Algorithm::ALL {
        let ttls = (0_u64..=16, 0_u64..3_000);
        let strategy = (quotas::any_policies(algorithm), any::<u64>(), ttls);
        let name = format!("lending_part_{algorithm}");
        check_property(&name, cases(), &strategy, |(policy, since, (parts, more))| {
            let policy = policy.with_effective_since(Timestamp::from_micros(since));
            let ttl = plus(MIN_LEASE_TTL, policy.quota().window.get() / 32 * parts + more);
            match lend(&policy, ttl, LeaseBound::Exact) {
                Ok(lent) => {
                    prop_assert_eq!(lent.effective_since(), policy.effective_since());
                    check_largest_part(&policy, &lent, ttl)
                }
                Err(LendingError::NoRoom { max_ttl }) => {
                    let may_lack = match algorithm {
                        Algorithm::SlidingWindowCounter => policy.limit() == 1,
                        bucket => bucket.is_bucket(),
                    };
                    prop_assert!(may_lack && max_ttl.is_none_or(|longest| longest < ttl));
                    check_longest(&policy, max_ttl)
                }
                Err(LendingError::TtlTooLong { max }) => {
                    prop_assert!(!algorithm.is_bucket() && max < ttl);
                    let longest = lend(&policy, max.max(MIN_LEASE_TTL), LeaseBound::PlusTtl);
                    prop_assert_eq!(longest.is_ok(), max >= MIN_LEASE_TTL);
                    Ok(())
                }
                Err(error) => {
                    prop_assert!(matches!(error, LendingError::Policy(_)), "{error:?}");
                    Ok(())
                }
            }
        });
    }
}

#[test]
fn shortest_lease_is_one_millisecond() {
    let policy = policy(Algorithm::TokenBucket, Quota::new(100, SECOND));
    let shorter = Micros::new(MIN_LEASE_TTL.get() - 1);
    for bound in [LeaseBound::Exact, LeaseBound::PlusTtl] {
        assert_eq!(lend(&policy, shorter, bound), Err(LendingError::TtlTooShort));
        assert!(lend(&policy, MIN_LEASE_TTL, bound).is_ok());
    }
    assert_eq!(MIN_LEASE_TTL, Micros::from_millis(1));
}

#[test]
fn only_limits_that_need_no_store_are_lent() {
    for algorithm in ALL_ALGORITHMS {
        let policy = policy(algorithm, Quota::new(100, SECOND));
        let lent = lend(&policy, Micros::from_millis(100), LeaseBound::PlusTtl);
        let needs_store = [Algorithm::LeakyBucket(LeakMode::Queue), Algorithm::Concurrent];
        match needs_store.contains(&algorithm) {
            true => assert_eq!(lent, Err(LendingError::NotLendable(algorithm))),
            false => assert_eq!(lent, Ok(policy), "the whole limit is lent"),
        }
    }
}

/// A bucket has no window that a lease could outlast.
#[test]
fn window_is_lent_for_at_most_half() {
    let half = Micros::new(SECOND.get() / 2);
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, Quota::new(1_000, SECOND));
        let lend = |ttl| lend(&policy, ttl, LeaseBound::PlusTtl);
        assert_eq!(lend(half), Ok(policy), "{algorithm}");
        let expected = match algorithm.is_bucket() {
            true => Ok(policy),
            false => Err(LendingError::TtlTooLong { max: half }),
        };
        assert_eq!(lend(plus(half, 1)), expected, "{algorithm}");
    }
}

#[test]
fn single_request_per_window_is_not_lent() {
    let no_room = Err(LendingError::NoRoom { max_ttl: None });
    for (algorithm, requests) in [
        (Algorithm::SlidingWindowCounter, 1),
        (Algorithm::TokenBucket, 1),
        (Algorithm::TokenBucket, 2),
    ] {
        let policy = policy(algorithm, Quota::new(requests, SECOND));
        assert_eq!(lend(&policy, MIN_LEASE_TTL, LeaseBound::Exact), no_room, "{algorithm}");
    }
}

#[test]
fn lease_ends_with_its_fixed_window() {
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, Quota::new(100, SECOND));
        let span = |ttl, after| policy.lease_span(Micros::new(ttl), START.plus(Micros::new(after)));
        let is_fixed = algorithm == Algorithm::FixedWindow;
        assert_eq!(span(200_000, 0), Micros::new(200_000), "{algorithm}");
        assert_eq!(span(200_000, 800_000), Micros::new(200_000), "{algorithm}");
        let short = if is_fixed { 1 } else { 200_000 };
        assert_eq!(span(200_000, 999_999), Micros::new(short), "{algorithm}");
    }
}

/// A bucket of 10 per second drains one request in 100 000 microseconds.
#[test]
fn refund_is_worth_while_whole_request_returns() {
    use Algorithm::{Concurrent, FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket};
    for (algorithm, charged_after, cost, last) in [
        (TokenBucket, 0, 2, Some(100_000)),
        (TokenBucket, 0, 1, Some(0)),
        (TokenBucket, 0, 0, None),
        (FixedWindow, 0, 1, Some(999_999)),
        (FixedWindow, 400_000, 1, Some(999_999)),
        (FixedWindow, 0, 0, None),
        (SlidingWindowCounter, 0, 1, Some(1_999_999)),
        (SlidingWindowCounter, 400_000, 1, Some(1_999_999)),
        (SlidingWindowLog, 0, 1, Some(999_999)),
        (SlidingWindowLog, 400_000, 1, Some(1_399_999)),
        (Concurrent, 0, 1, Some(999_999)),
        (SlidingWindowLog, 0, 0, None),
    ] {
        let policy = policy(algorithm, Quota::new(10, SECOND));
        let at = |micros| START.plus(Micros::new(micros));
        let is_worth = |now| policy.is_worth_refunding(cost, at(charged_after), at(now));
        let Some(last) = last else {
            assert!(!is_worth(charged_after), "{algorithm}: nothing was charged");
            continue;
        };
        assert!(is_worth(charged_after) && is_worth(last), "{algorithm} {charged_after} {cost}");
        assert!(!is_worth(last + 1), "{algorithm} {charged_after} {cost}");
    }
}

#[test]
fn bounds_have_the_names_used_in_rules() {
    assert_eq!(
        [LeaseBound::Exact, LeaseBound::PlusTtl].map(LeaseBound::name),
        ["exact", "plus_ttl"]
    );
}
