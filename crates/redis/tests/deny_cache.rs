//! Refusals that are remembered, on the server's own clock: the server is not called, and nobody is
//! refused who would pass.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::seeded_rng::SeededRng;
use common::{CommandStats, RedisFixture, calls_during, charge, options, policy};
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::Micros;
use tidegate_redis::RedisOptions;
use tidegate_testkit::process::{eventually, eventually_some};
use tidegate_testkit::property::cases;
use tidegate_testkit::quotas::RATE_ALGORITHMS;
use tidegate_testkit::redis::RedisServer;

/// Longer than any test, also at its end.
const LONG: Micros = Micros::from_secs(400 * 86_400);

fn caching_fixture(url: &str) -> RedisFixture {
    RedisFixture::with_options(&RedisOptions { deny_cache: true, ..options(url) })
}

fn is_refused(told: &(AnsweredBy, Vec<Reading>)) -> bool {
    told.1.iter().any(|told| told.verdict.refuses())
}

/// Uses up a limit and is refused once; returns that refusal.
fn exhaust_limit(stand: &RedisFixture, charge: Charge<'_>) -> Reading {
    let all = Charge { cost: charge.policy.limit(), ..charge };
    assert_eq!(stand.apply_one(Op::Charge, all).verdict, Verdict::Allow);
    let (by, told) = stand.apply_with_source(Op::Charge, &[charge]);
    assert_eq!((by, told[0].verdict), (AnsweredBy::Store, Verdict::Deny));
    told[0]
}

#[test]
fn refused_key_needs_no_store_call() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let policy = policy(algorithm, 5, LONG);
        let one = charge(key as u64, &policy);
        let first = exhaust_limit(&stand, one);
        let mut by_the_store = 0;
        let calls = calls_during(&server, "evalsha", || {
            for _ in 0..1_000 {
                let (by, told) = stand.apply_with_source(Op::Charge, &[one]);
                let told = told[0];
                by_the_store += u64::from(by == AnsweredBy::Store);
                assert_eq!((told.verdict, told.limit, told.remaining), (Verdict::Deny, 5, 0));
                let (Retry::After(first_wait), Retry::After(wait)) = (first.retry, told.retry)
                else {
                    panic!("{told:?}");
                };
                assert!(told.now >= first.now && wait <= first_wait, "{first:?}, then {told:?}");
            }
        });
        assert_eq!(calls, by_the_store);
        // It asks again after a second, and this machine may have other things to do.
        assert!(calls <= 2, "{algorithm}: {calls} calls");
    }
}

/// Its wait is another.
#[test]
fn different_cost_bypasses_cache() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    let policy = policy(Algorithm::TokenBucket, 10, LONG);
    let cost = |cost| [Charge { cost, ..charge(1, &policy) }];
    exhaust_limit(&stand, cost(5)[0]);
    assert_eq!(stand.apply_with_source(Op::Charge, &cost(5)).0, AnsweredBy::DenyCache);
    let (by, told) = stand.apply_with_source(Op::Charge, &cost(11));
    assert_eq!((by, told[0].retry), (AnsweredBy::Store, Retry::Never));
    let (by, told) = stand.apply_with_source(Op::Charge, &cost(11));
    assert_eq!((by, told[0].retry), (AnsweredBy::DenyCache, Retry::Never));
    assert_eq!(stand.apply_with_source(Op::Charge, &cost(1)).0, AnsweredBy::Store);
}

/// It went on saying that 3 were left and that two minutes were to be waited, on this node and on others.
#[test]
fn refusal_reports_remaining_after_smaller_costs() {
    let server = RedisServer::start();
    let (stand, other) = (caching_fixture(&server.url()), caching_fixture(&server.url()));
    let minute = Micros::from_secs(60);
    let quota = Quota::new(1, minute).with_burst(5);
    let policy = Policy::new(Algorithm::TokenBucket, quota).expect("numbers that work");
    for (key, smaller) in [(1, &stand), (2, &other)] {
        let told = |stand: &RedisFixture, cost| {
            stand.apply_one(Op::Charge, Charge { cost, ..charge(key, &policy) })
        };
        let first = told(&stand, 2);
        assert_eq!((first.verdict, first.remaining), (Verdict::Allow, 3));
        let refused = told(&stand, 5);
        assert_eq!((refused.verdict, refused.remaining), (Verdict::Deny, 3));
        assert_eq!(told(smaller, 1).verdict, Verdict::Allow);
        let refused = told(&stand, 5);
        assert_eq!((refused.verdict, refused.remaining), (Verdict::Deny, 2));
        let Retry::After(wait) = refused.retry else { panic!("{refused:?}") };
        let passes = first.now.plus(Micros::from_secs(180));
        assert_eq!(refused.now.plus(wait), passes, "three minutes after the first charge");
    }
}

#[test]
fn cached_refusal_ends_when_admissible() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    let policy = policy(Algorithm::TokenBucket, 10, Micros::from_millis(500));
    let one = charge(1, &policy);
    let refusal = exhaust_limit(&stand, one);
    let (mut remembered, Retry::After(wait)) = (0, refusal.retry) else { panic!("{refusal:?}") };
    let passed = eventually_some("it passes", || {
        let (by, told) = stand.apply_with_source(Op::Charge, &[one]);
        remembered += u32::from(by == AnsweredBy::DenyCache);
        (told[0].verdict == Verdict::Allow).then_some(told[0])
    });
    assert!(passed.now >= refusal.now.plus(wait), "sooner than was told");
    assert!(remembered > 0);
}

#[test]
fn cached_refusal_lasts_one_second() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    let policy = policy(Algorithm::FixedWindow, 1, LONG);
    let refusal = exhaust_limit(&stand, charge(1, &policy));
    let again = eventually_some("the store is asked again", || {
        let (by, told) = stand.apply_with_source(Op::Charge, &[charge(1, &policy)]);
        (by == AnsweredBy::Store).then_some(told[0].now)
    });
    let after = again.since(refusal.now);
    assert!((950_000..5_000_000).contains(&after.get()), "asked again after {after}");
}

#[test]
fn local_refund_invalidates_cached_refusal() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let (five, six) = (policy(algorithm, 5, LONG), policy(algorithm, 6, LONG));
        let one = charge(key as u64, &five);
        let passes = |charge| !is_refused(&stand.apply_with_source(Op::Charge, &[charge]));

        exhaust_limit(&stand, one);
        assert!(!passes(one));
        stand.apply(Op::Reset, &[one]);
        assert!(passes(one), "{algorithm}: reset");

        stand.apply(Op::Reset, &[one]);
        let charged_at = stand.apply_one(Op::Charge, Charge { cost: 5, ..one }).now;
        assert!(!passes(one) && !passes(one));
        stand.apply(Op::Refund { charged_at }, &[Charge { cost: 2, ..one }]);
        assert!(passes(one), "{algorithm}: refund");

        stand.apply(Op::Reset, &[one]);
        let now = exhaust_limit(&stand, one).now;
        assert!(!passes(one));
        let raised = six.with_effective_since(now);
        assert!(passes(Charge { policy: &raised, ..one }), "{algorithm}: another limit");
    }
}

/// A rule that counts refusals hears of every one.
#[test]
fn strikes_count_despite_cached_refusal() {
    let server = RedisServer::start();
    let stand = caching_fixture(&server.url());
    let (narrow, wide) =
        (policy(Algorithm::TokenBucket, 1, LONG), policy(RATE_ALGORITHMS[3], 1, LONG));
    let ban = BanPolicy::new(3, LONG, LONG, 1, LONG);
    let strict = Charge { ban: Some(&ban), ..charge(2, &wide) };
    let both = [charge(1, &narrow), strict];
    assert!(!is_refused(&stand.apply_with_source(Op::Charge, &both)));
    let verdicts: Vec<Verdict> =
        (0..4).map(|_| stand.apply(Op::Charge, &both)[1].verdict).collect();
    assert_eq!(verdicts, [Verdict::Deny, Verdict::Deny, Verdict::Deny, Verdict::Ban]);
}

/// A ban that is shorter than the wait at the limit was remembered for as long as that wait.
#[test]
fn warning_follows_an_expired_ban() {
    let server = RedisServer::start();
    let (stand, plain) = (caching_fixture(&server.url()), RedisFixture::connect(&server.url()));
    let main = policy(Algorithm::TokenBucket, 1, LONG);
    let grace = policy(Algorithm::TokenBucket, 1, Micros::from_millis(20));
    let length = Micros::from_millis(40);
    let ban = BanPolicy::new(1, length, length, 1, length);
    let one = [Charge { grace: Some(&grace), ban: Some(&ban), ..charge(1, &main) }];
    stand.apply(Op::Charge, &one);
    eventually("it is banned", || stand.apply(Op::Charge, &one)[0].verdict == Verdict::Ban);
    eventually("the ban is over", || {
        let would_pass = !is_refused(&plain.apply_with_source(Op::Peek, &one));
        let told = stand.apply_with_source(Op::Charge, &one);
        assert!(!would_pass || !is_refused(&told), "{told:?}");
        would_pass
    });
}

/// Rules of all algorithms whose refusals last from less than a millisecond to more than a second.
fn rules(dice: &mut SeededRng) -> Vec<(Policy, Option<Policy>, Option<BanPolicy>)> {
    let rule = |i: usize| {
        let window = Micros::from_millis(dice.choose(&[2, 10, 40, 150, 3_000]));
        let requests = dice.between(1, 12);
        let burst = RATE_ALGORITHMS[i % 6].is_bucket().then(|| dice.between(1, 12));
        let quota = Quota { requests, window, burst };
        let main = Policy::new(RATE_ALGORITHMS[i % 6], quota).expect("numbers that work");
        let grace = dice.one_in(4).then(|| policy(Algorithm::SlidingWindowLog, 2, window));
        let length = Micros::from_millis(dice.choose(&[3, 20, 60]));
        let ban = dice.one_in(4).then(|| BanPolicy::new(3, window, length, 2, window));
        (main, grace, ban)
    };
    (0..12).map(rule).collect()
}

/// What is remembered says what the store said just before.
fn matches_store_reading(told: &Reading, looked: &Reading) -> bool {
    let ends = |reading: &Reading| match reading.retry {
        Retry::After(wait) => Some(reading.now.plus(wait).as_micros()),
        Retry::Now | Retry::Never => None,
    };
    // Each is rounded up to a microsecond.
    let as_long = match (ends(told), ends(looked)) {
        (Some(told), Some(looked)) => told + 1 >= looked,
        (told, looked) => told == looked,
    };
    as_long && (told.verdict == Verdict::Ban || told.remaining == looked.remaining)
}

/// Who would have passed just before passes: nobody else charges meanwhile, and time only gives back.
#[test]
fn cache_refuses_no_admissible_request() {
    let server = RedisServer::start();
    let (stand, plain) = (caching_fixture(&server.url()), RedisFixture::connect(&server.url()));
    let mut dice = SeededRng::new(7);
    let rules = rules(&mut dice);
    let (mut remembered, mut admitted, mut charged) = (0, 0, None);
    let before = CommandStats::from_server(&server).calls("evalsha");
    let steps = u64::from(cases()) / 10;
    for step in 0..steps {
        let first = usize::try_from(dice.below(12)).expect("a place");
        let key = dice.below(2);
        let charges: Vec<Charge<'_>> = (first..first + usize::from(dice.one_in(3)) + 1)
            .map(|i| {
                let (policy, grace, ban) = &rules[i % 12];
                let role = if i == 11 { Role::Shadow } else { Role::Enforce };
                let cost = if dice.one_in(3) { dice.between(1, 6) } else { 1 };
                let charge = charge((i % 12) as u64 * 2 + key, policy);
                Charge { cost, role, grace: grace.as_ref(), ban: ban.as_ref(), ..charge }
            })
            .collect();
        let op = match (dice.below(200), charged) {
            (0, _) => Op::Reset,
            (1..=6, Some(charged_at)) => Op::Refund { charged_at },
            (7 | 8, _) => Op::Force,
            _ => Op::Charge,
        };
        let looked = plain.apply_with_source(Op::Peek, &charges);
        let told = stand.apply_with_source(op, &charges);
        if op == Op::Charge {
            let would_pass = !is_refused(&looked);
            assert!(
                !would_pass || !is_refused(&told),
                "step {step}: {told:?}, {looked:?}, {charges:?}"
            );
            if told.0 == AnsweredBy::DenyCache {
                remembered += 1;
                let known = told.1.iter().zip(&looked.1).filter(|(told, _)| told.verdict.refuses());
                for (told, looked) in known {
                    assert!(
                        matches_store_reading(told, looked),
                        "step {step}: {told:?}, {looked:?}"
                    );
                }
            }
            admitted += u64::from(!is_refused(&told));
        }
        if told.0 == AnsweredBy::Store {
            charged = Some(told.1[0].now);
        }
    }
    let calls = CommandStats::from_server(&server).calls("evalsha") - before;
    println!("{steps} steps: {remembered} refused without a call, {admitted} admitted");
    assert_eq!(calls, 2 * steps - remembered);
    assert!(remembered > steps / 20 && admitted > steps / 20, "{remembered}, {admitted}");
}
