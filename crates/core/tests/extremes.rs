//! Extreme numbers: a policy is either rejected with a reason or decides correctly, and nothing
//! panics. A test that names another rate limiter guards against a defect found in it.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use proptest::prelude::*;
use tidegate_core::algorithm::{Fit, State};
use tidegate_core::batch::StateKind;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, LeakMode, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, QueueMode, Role};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas::{ALL_ALGORITHMS, RATE_ALGORITHMS};
use tidegate_testkit::state_table::StateTable;

const SECOND: Micros = Micros::from_secs(1);
const YEAR: Micros = Micros::from_secs(31_536_000);
const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn policy(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::new(algorithm, quota).unwrap()
}

/// Returns how many of `attempts` requests of cost 1 are admitted at one instant.
fn count_admitted(
    policy: &Policy,
    state: &mut Option<State>,
    attempts: u64,
    now: Timestamp,
) -> u64 {
    let mut passed = 0;
    for _ in 0..attempts {
        if policy.fit(state.as_ref(), 1, now).is_now() {
            policy.charge(state, 1, now);
            passed += 1;
        }
    }
    passed
}

#[test]
fn uncountable_quotas_are_rejected() {
    for huge in [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64, 1 << 60] {
        for algorithm in ALL_ALGORITHMS {
            let error = Policy::new(algorithm, Quota::new(huge, YEAR)).unwrap_err();
            assert!(!error.to_string().is_empty());
            let long = Quota::new(1, Micros::new(huge));
            assert_eq!(Policy::new(algorithm, long), Err(PolicyError::WindowTooLong));
        }
        let burst = Quota::new(1, YEAR).with_burst(huge);
        assert_eq!(Policy::new(Algorithm::TokenBucket, burst), Err(PolicyError::BucketTooLarge));
    }
}

#[test]
fn cost_above_limit_never_fits() {
    for algorithm in ALL_ALGORITHMS {
        let policy = policy(algorithm, Quota::new(10, SECOND));
        let key = Key::without_namespace("law", Fingerprint::default());
        for cost in [11, u64::from(u32::MAX), i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            let charge = Charge::plain(key, &policy, cost);
            let mut table = StateTable::default();
            let reading = table.apply_one(Op::Charge, &charge, NOW);
            assert_eq!(
                (reading.verdict, reading.retry, reading.remaining),
                (Verdict::Deny, Retry::Never, 10)
            );
            assert_eq!(table.state(key.fingerprint, StateKind::Main), None);
            // A forced charge is capped at a debt of one limit, and a refund removes it
            // (limitador's `delta` wraps).
            assert_eq!(table.apply_one(Op::Force, &charge, NOW).remaining, 0, "{algorithm}");
            let again = Charge { cost: 1, ..charge };
            let Retry::After(wait) = table.apply_one(Op::Charge, &again, NOW).retry else {
                panic!("{algorithm} must be in debt")
            };
            assert!(wait <= Micros::from_secs(2), "{algorithm} {wait}");
            let refund = Op::Refund { charged_at: NOW };
            assert_eq!(table.apply_one(refund, &charge, NOW).remaining, 10, "{algorithm}");
        }
    }
}

/// redis-cell#50: at 6 000/s and above, nothing was limited.
#[test]
fn high_rates_are_exact_to_the_microsecond() {
    for requests in [1, 7, 1_000, 6_000, 10_000, 999_983, 1_000_000] {
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket(LeakMode::Police)] {
            let policy = policy(algorithm, Quota::new(requests, SECOND));
            let mut state = None;
            policy.charge(&mut state, requests, NOW);
            let wait = Micros::new(1_000_000_u64.div_ceil(requests));
            assert_eq!(policy.fit(state.as_ref(), 1, NOW), Fit::After(wait), "{requests}/s");
            assert_eq!(count_admitted(&policy, &mut state, 3, NOW.plus(wait)), 1, "{requests}/s");
            let later = Micros::new(500_000 + wait.get());
            let left = policy.gauge(state.as_ref(), NOW.plus(later)).remaining;
            assert_eq!(left, requests * later.get() / 1_000_000 - 1, "{requests}/s");
        }
    }
}

#[test]
fn year_window_is_exact_to_the_microsecond() {
    for algorithm in RATE_ALGORITHMS {
        let policy = policy(algorithm, Quota::new(1, YEAR));
        let (mut state, start) = (None, Timestamp::from_micros(YEAR.get() * 50));
        assert_eq!(count_admitted(&policy, &mut state, 5, start), 1);
        let Fit::After(wait) = policy.fit(state.as_ref(), 1, start) else { panic!("{algorithm}") };
        let years = if algorithm == Algorithm::SlidingWindowCounter { 2 } else { 1 };
        assert_eq!(wait.get(), YEAR.get() * years, "{algorithm}");
        let just_before = start.plus(Micros::new(wait.get() - 1));
        assert_eq!(count_admitted(&policy, &mut state, 5, just_before), 0, "{algorithm}");
        assert_eq!(count_admitted(&policy, &mut state, 5, start.plus(wait)), 1, "{algorithm}");
    }
}

/// throttlecrab: a `max_burst` of 1 never limits (1 000 of 1 000 were admitted).
#[test]
fn burst_of_one_admits_one() {
    for leak in [LeakMode::Police, LeakMode::Queue] {
        let quota = Quota::new(10, SECOND).with_burst(1);
        let policy = policy(Algorithm::LeakyBucket(leak), quota);
        assert_eq!(count_admitted(&policy, &mut None, 1_000, NOW), 1);
    }
    let bucket = policy(Algorithm::TokenBucket, Quota::new(10, SECOND).with_burst(1));
    assert_eq!(count_admitted(&bucket, &mut None, 1_000, NOW), 1);
}

/// throttlecrab: about twice the burst was admitted after idling (194 of 100), 17 of 10 at once.
#[test]
fn idle_bucket_admits_at_most_burst() {
    for (requests, burst, idle_s) in
        [(100, 100, 10), (10, 10, 1), (100, 100, 3_600), (60, 10, 86_400)]
    {
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket(LeakMode::Police)] {
            let quota = Quota::new(requests, Micros::from_secs(60)).with_burst(burst);
            let policy = policy(algorithm, quota);
            let mut state = None;
            count_admitted(&policy, &mut state, burst / 2, NOW);
            let later = NOW.plus(Micros::from_secs(idle_s));
            assert!(count_admitted(&policy, &mut state, 2_000, later) <= burst);
        }
    }
}

/// upstash: a cost above the remaining amount is admitted if anything remains.
#[test]
fn cost_above_remaining_charges_nothing() {
    for algorithm in ALL_ALGORITHMS {
        let policy = policy(algorithm, Quota::new(10, SECOND));
        let mut state = None;
        policy.charge(&mut state, 7, NOW);
        assert!(matches!(policy.fit(state.as_ref(), 4, NOW), Fit::After(_)), "{algorithm}");
        assert!(policy.fit(state.as_ref(), 3, NOW).is_now(), "{algorithm}");
    }
}

/// throttlecrab and tower-governor return 0 seconds for a wait of 900 ms.
#[test]
fn subsecond_wait_is_exact_and_rounds_up() {
    let bucket = policy(Algorithm::TokenBucket, Quota::new(1, SECOND));
    let mut state = None;
    bucket.charge(&mut state, 1, NOW);
    let Fit::After(wait) = bucket.fit(state.as_ref(), 1, NOW.plus(Micros::from_millis(100))) else {
        panic!("the bucket must be full")
    };
    assert_eq!((wait.get(), wait.as_millis_ceil(), wait.as_secs_ceil()), (900_000, 900, 1));
}

/// The time may be zero, after the year 2112, or the maximum.
#[test]
fn limit_holds_at_timestamp_extremes() {
    let ends = [0, 1, (1 << 52) - 1, 1 << 52, 1 << 53, u64::MAX - 1, u64::MAX];
    for (algorithm, end) in ALL_ALGORITHMS.into_iter().flat_map(|one| ends.map(|end| (one, end))) {
        for window in [Micros::new(1), Micros::new(2), SECOND, YEAR] {
            let policy = policy(algorithm, Quota::new(3, window));
            let (mut state, now) = (None, Timestamp::from_micros(end));
            assert_eq!(
                count_admitted(&policy, &mut state, 9, now),
                3,
                "{algorithm} {end} {window}"
            );
            policy.charge(&mut state, u64::MAX, now);
            assert_eq!(policy.gauge(state.as_ref(), now).remaining, 0, "{algorithm} {end}");
            assert!(state.as_ref().is_some_and(|state| state.expires_at() >= now));
            policy.refund(&mut state, u64::MAX, now, now);
            assert_eq!(policy.gauge(state.as_ref(), now).remaining, 3, "{algorithm} {end}");
        }
    }
}

/// Arbitrary numbers; extreme and small ones are more frequent.
fn arbitrary_number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64, 0_u8..24).prop_map(|(raw, bits, kind)| match kind {
        0 => raw,
        1 => u64::MAX - (raw >> bits),
        2 => u64::MAX,
        3 => raw % 3,
        _ => raw >> bits,
    })
}

/// throttlecrab: one request with large numbers terminates its only worker.
#[test]
fn arbitrary_numbers_never_panic() {
    let policies = || {
        (
            0_usize..7,
            arbitrary_number(),
            arbitrary_number(),
            proptest::option::of(arbitrary_number()),
        )
    };
    let step = (0_u8..7, arbitrary_number(), arbitrary_number(), arbitrary_number());
    let steps = prop::collection::vec(step, 1..12);
    let strategy = (policies(), policies(), arbitrary_number(), steps);
    check_property("totality", cases(), &strategy, |(one, other, since, steps)| {
        let make = |(which, requests, window, burst): (usize, u64, u64, Option<u64>)| {
            let burst = burst.filter(|_| ALL_ALGORITHMS[which].is_bucket());
            Policy::new(
                ALL_ALGORITHMS[which],
                Quota { requests, window: Micros::new(window), burst },
            )
        };
        let one = match make(one) {
            Ok(policy) => policy,
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                return Ok(());
            }
        };
        let other = make(other).unwrap_or(one);
        let reloaded = other.with_effective_since(Timestamp::from_micros(since));
        let span = |n: u64| Micros::new(n);
        let ban = BanPolicy::new(3, span(since), span(one.limit()), u32::MAX, span(other.limit()));
        let mut table = StateTable::default();
        for (i, (kind, cost, at, then)) in steps.into_iter().enumerate() {
            let policy = if i % 4 == 3 { &reloaded } else { &one };
            let op = match kind {
                0 | 1 => Op::Charge,
                2 => Op::Peek,
                3 => Op::Force,
                4 => Op::Refund { charged_at: Timestamp::from_micros(then) },
                5 => Op::Renew { charged_at: Timestamp::from_micros(then) },
                _ => Op::Reset,
            };
            let key = Key::without_namespace("law", Fingerprint::default());
            let charge = Charge {
                role: if then % 2 == 0 { Role::Enforce } else { Role::Always },
                grace: (then % 3 == 0).then_some(&other),
                ban: (then % 5 == 0).then_some(&ban),
                queue: if then % 7 == 0 { QueueMode::Refuse } else { QueueMode::Hold },
                ..Charge::plain(key, policy, cost)
            };
            let now = Timestamp::from_micros(at);
            let reading = table.apply_one(op, &charge, now);
            prop_assert!(reading.remaining <= policy.limit());
            prop_assert_eq!(reading.limit, policy.limit());
            if matches!(op, Op::Charge) {
                prop_assert_eq!(reading.retry == Retry::Never, cost > policy.limit());
            }
            if let Some(state) = table.state(Fingerprint::default(), StateKind::Main) {
                let fresh = state.expires_at().max(now);
                let written = if i % 4 == 3 { &reloaded } else { &one };
                let left = written.gauge(Some(state), fresh).remaining;
                prop_assert!(left <= written.limit());
            }
        }
        Ok(())
    });
}
