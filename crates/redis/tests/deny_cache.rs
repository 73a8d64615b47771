//! The deny cache, on the server's clock: a cached refusal needs no call, and no request is refused
//! that the store would admit.

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

/// A window much longer than any test.
const LONG: Micros = Micros::from_secs(400 * 86_400);

fn caching_fixture(url: &str) -> RedisFixture {
    RedisFixture::with_options(&RedisOptions { deny_cache: true, ..options(url) })
}

fn is_refused(reply: &(AnsweredBy, Vec<Reading>)) -> bool {
    reply.1.iter().any(|reply| reply.verdict.refuses())
}

/// Uses up a limit, and returns the first refusal.
fn exhaust_limit(fixture: &RedisFixture, charge: Charge<'_>) -> Reading {
    let all = Charge { cost: charge.policy.limit(), ..charge };
    assert_eq!(fixture.apply_one(Op::Charge, all).verdict, Verdict::Allow);
    let (by, reply) = fixture.apply_with_source(Op::Charge, &[charge]);
    assert_eq!((by, reply[0].verdict), (AnsweredBy::Store, Verdict::Deny));
    reply[0]
}

#[test]
fn refused_key_needs_no_store_call() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let policy = policy(algorithm, 5, LONG);
        let one = charge(key as u64, &policy);
        let first = exhaust_limit(&fixture, one);
        let mut by_the_store = 0;
        let calls = calls_during(&server, "evalsha", || {
            for _ in 0..1_000 {
                let (by, reply) = fixture.apply_with_source(Op::Charge, &[one]);
                let reply = reply[0];
                by_the_store += u64::from(by == AnsweredBy::Store);
                assert_eq!((reply.verdict, reply.limit, reply.remaining), (Verdict::Deny, 5, 0));
                let (Retry::After(first_wait), Retry::After(wait)) = (first.retry, reply.retry)
                else {
                    panic!("{reply:?}");
                };
                assert!(reply.now >= first.now && wait <= first_wait, "{first:?}, then {reply:?}");
            }
        });
        assert_eq!(calls, by_the_store);
        // The cache asks the store again after a second, which may pass on a busy machine.
        assert!(calls <= 2, "{algorithm}: {calls} calls");
    }
}

/// A refusal is cached per cost, because the wait depends on the cost.
#[test]
fn different_cost_bypasses_cache() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    let policy = policy(Algorithm::TokenBucket, 10, LONG);
    let cost = |cost| [Charge { cost, ..charge(1, &policy) }];
    exhaust_limit(&fixture, cost(5)[0]);
    assert_eq!(fixture.apply_with_source(Op::Charge, &cost(5)).0, AnsweredBy::DenyCache);
    let (by, reply) = fixture.apply_with_source(Op::Charge, &cost(11));
    assert_eq!((by, reply[0].retry), (AnsweredBy::Store, Retry::Never));
    let (by, reply) = fixture.apply_with_source(Op::Charge, &cost(11));
    assert_eq!((by, reply[0].retry), (AnsweredBy::DenyCache, Retry::Never));
    assert_eq!(fixture.apply_with_source(Op::Charge, &cost(1)).0, AnsweredBy::Store);
}

/// Regression: after a smaller cost was charged, on this node or another, the cached refusal still
/// reported 3 remaining and a wait of two minutes.
#[test]
fn refusal_reports_remaining_after_smaller_costs() {
    let server = RedisServer::start();
    let (fixture, other) = (caching_fixture(&server.url()), caching_fixture(&server.url()));
    let minute = Micros::from_secs(60);
    let quota = Quota::new(1, minute).with_burst(5);
    let policy = Policy::new(Algorithm::TokenBucket, quota).expect("numbers that work");
    for (key, smaller) in [(1, &fixture), (2, &other)] {
        let reply = |fixture: &RedisFixture, cost| {
            fixture.apply_one(Op::Charge, Charge { cost, ..charge(key, &policy) })
        };
        let first = reply(&fixture, 2);
        assert_eq!((first.verdict, first.remaining), (Verdict::Allow, 3));
        let refused = reply(&fixture, 5);
        assert_eq!((refused.verdict, refused.remaining), (Verdict::Deny, 3));
        assert_eq!(reply(smaller, 1).verdict, Verdict::Allow);
        let refused = reply(&fixture, 5);
        assert_eq!((refused.verdict, refused.remaining), (Verdict::Deny, 2));
        let Retry::After(wait) = refused.retry else { panic!("{refused:?}") };
        let passes = first.now.plus(Micros::from_secs(180));
        assert_eq!(refused.now.plus(wait), passes, "three minutes after the first charge");
    }
}

#[test]
fn cached_refusal_ends_when_admissible() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    let policy = policy(Algorithm::TokenBucket, 10, Micros::from_millis(500));
    let one = charge(1, &policy);
    let refusal = exhaust_limit(&fixture, one);
    let (mut remembered, Retry::After(wait)) = (0, refusal.retry) else { panic!("{refusal:?}") };
    let passed = eventually_some("it passes", || {
        let (by, reply) = fixture.apply_with_source(Op::Charge, &[one]);
        remembered += u32::from(by == AnsweredBy::DenyCache);
        (reply[0].verdict == Verdict::Allow).then_some(reply[0])
    });
    assert!(passed.now >= refusal.now.plus(wait), "admitted before the reported wait ended");
    assert!(remembered > 0);
}

#[test]
fn cached_refusal_lasts_one_second() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    let policy = policy(Algorithm::FixedWindow, 1, LONG);
    let refusal = exhaust_limit(&fixture, charge(1, &policy));
    let again = eventually_some("the store decides again", || {
        let (by, reply) = fixture.apply_with_source(Op::Charge, &[charge(1, &policy)]);
        (by == AnsweredBy::Store).then_some(reply[0].now)
    });
    let after = again.since(refusal.now);
    assert!((950_000..5_000_000).contains(&after.get()), "the store decided again after {after}");
}

#[test]
fn local_refund_invalidates_cached_refusal() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let (five, six) = (policy(algorithm, 5, LONG), policy(algorithm, 6, LONG));
        let one = charge(key as u64, &five);
        let passes = |charge| !is_refused(&fixture.apply_with_source(Op::Charge, &[charge]));

        exhaust_limit(&fixture, one);
        assert!(!passes(one));
        fixture.apply(Op::Reset, &[one]);
        assert!(passes(one), "{algorithm}: reset");

        fixture.apply(Op::Reset, &[one]);
        let charged_at = fixture.apply_one(Op::Charge, Charge { cost: 5, ..one }).now;
        assert!(!passes(one) && !passes(one));
        fixture.apply(Op::Refund { charged_at }, &[Charge { cost: 2, ..one }]);
        assert!(passes(one), "{algorithm}: refund");

        fixture.apply(Op::Reset, &[one]);
        let now = exhaust_limit(&fixture, one).now;
        assert!(!passes(one));
        let raised = six.with_effective_since(now);
        assert!(passes(Charge { policy: &raised, ..one }), "{algorithm}: another limit");
    }
}

/// A rule with a ban counts every refusal, so its requests always reach the store.
#[test]
fn strikes_count_despite_cached_refusal() {
    let server = RedisServer::start();
    let fixture = caching_fixture(&server.url());
    let (narrow, wide) =
        (policy(Algorithm::TokenBucket, 1, LONG), policy(RATE_ALGORITHMS[3], 1, LONG));
    let ban = BanPolicy::new(3, LONG, LONG, 1, LONG);
    let strict = Charge { ban: Some(&ban), ..charge(2, &wide) };
    let both = [charge(1, &narrow), strict];
    assert!(!is_refused(&fixture.apply_with_source(Op::Charge, &both)));
    let verdicts: Vec<Verdict> =
        (0..4).map(|_| fixture.apply(Op::Charge, &both)[1].verdict).collect();
    assert_eq!(verdicts, [Verdict::Deny, Verdict::Deny, Verdict::Deny, Verdict::Ban]);
}

/// Regression: a ban that is shorter than the limit's wait was cached for as long as that wait.
#[test]
fn warning_follows_an_expired_ban() {
    let server = RedisServer::start();
    let (fixture, plain) = (caching_fixture(&server.url()), RedisFixture::connect(&server.url()));
    let main = policy(Algorithm::TokenBucket, 1, LONG);
    let grace = policy(Algorithm::TokenBucket, 1, Micros::from_millis(20));
    let length = Micros::from_millis(40);
    let ban = BanPolicy::new(1, length, length, 1, length);
    let one = [Charge { grace: Some(&grace), ban: Some(&ban), ..charge(1, &main) }];
    fixture.apply(Op::Charge, &one);
    eventually("it is banned", || fixture.apply(Op::Charge, &one)[0].verdict == Verdict::Ban);
    eventually("the ban is over", || {
        let would_pass = !is_refused(&plain.apply_with_source(Op::Peek, &one));
        let reply = fixture.apply_with_source(Op::Charge, &one);
        assert!(!would_pass || !is_refused(&reply), "{reply:?}");
        would_pass
    });
}

/// Rules of all algorithms whose refusals last from less than a millisecond to more than a second.
fn rules(rng: &mut SeededRng) -> Vec<(Policy, Option<Policy>, Option<BanPolicy>)> {
    let rule = |i: usize| {
        let window = Micros::from_millis(rng.choose(&[2, 10, 40, 150, 3_000]));
        let requests = rng.between(1, 12);
        let burst = RATE_ALGORITHMS[i % 6].is_bucket().then(|| rng.between(1, 12));
        let quota = Quota { requests, window, burst };
        let main = Policy::new(RATE_ALGORITHMS[i % 6], quota).expect("numbers that work");
        let grace = rng.one_in(4).then(|| policy(Algorithm::SlidingWindowLog, 2, window));
        let length = Micros::from_millis(rng.choose(&[3, 20, 60]));
        let ban = rng.one_in(4).then(|| BanPolicy::new(3, window, length, 2, window));
        (main, grace, ban)
    };
    (0..12).map(rule).collect()
}

/// Whether a cached refusal agrees with the store's reading just before.
fn matches_store_reading(reply: &Reading, peeked: &Reading) -> bool {
    let ends = |reading: &Reading| match reading.retry {
        Retry::After(wait) => Some(reading.now.plus(wait).as_micros()),
        Retry::Now | Retry::Never => None,
    };
    // Each is rounded up to a microsecond.
    let as_long = match (ends(reply), ends(peeked)) {
        (Some(reply), Some(peeked)) => reply + 1 >= peeked,
        (reply, peeked) => reply == peeked,
    };
    as_long && (reply.verdict == Verdict::Ban || reply.remaining == peeked.remaining)
}

/// A request that the store would have admitted just before is admitted: no other client charges in
/// between, and time only refills.
#[test]
fn cache_refuses_no_admissible_request() {
    let server = RedisServer::start();
    let (fixture, plain) = (caching_fixture(&server.url()), RedisFixture::connect(&server.url()));
    let mut rng = SeededRng::new(7);
    let rules = rules(&mut rng);
    let (mut remembered, mut admitted, mut charged) = (0, 0, None);
    let before = CommandStats::from_server(&server).calls("evalsha");
    let steps = u64::from(cases()) / 10;
    for step in 0..steps {
        let first = usize::try_from(rng.below(12)).expect("a place");
        let key = rng.below(2);
        let charges: Vec<Charge<'_>> = (first..first + usize::from(rng.one_in(3)) + 1)
            .map(|i| {
                let (policy, grace, ban) = &rules[i % 12];
                let role = if i == 11 { Role::Shadow } else { Role::Enforce };
                let cost = if rng.one_in(3) { rng.between(1, 6) } else { 1 };
                let charge = charge((i % 12) as u64 * 2 + key, policy);
                Charge { cost, role, grace: grace.as_ref(), ban: ban.as_ref(), ..charge }
            })
            .collect();
        let op = match (rng.below(200), charged) {
            (0, _) => Op::Reset,
            (1..=6, Some(charged_at)) => Op::Refund { charged_at },
            (7 | 8, _) => Op::Force,
            _ => Op::Charge,
        };
        let peeked = plain.apply_with_source(Op::Peek, &charges);
        let reply = fixture.apply_with_source(op, &charges);
        if op == Op::Charge {
            let would_pass = !is_refused(&peeked);
            assert!(
                !would_pass || !is_refused(&reply),
                "step {step}: {reply:?}, {peeked:?}, {charges:?}"
            );
            if reply.0 == AnsweredBy::DenyCache {
                remembered += 1;
                let known =
                    reply.1.iter().zip(&peeked.1).filter(|(reply, _)| reply.verdict.refuses());
                for (reply, peeked) in known {
                    assert!(
                        matches_store_reading(reply, peeked),
                        "step {step}: {reply:?}, {peeked:?}"
                    );
                }
            }
            admitted += u64::from(!is_refused(&reply));
        }
        if reply.0 == AnsweredBy::Store {
            charged = Some(reply.1[0].now);
        }
    }
    let calls = CommandStats::from_server(&server).calls("evalsha") - before;
    println!("{steps} steps: {remembered} refused without a call, {admitted} admitted");
    assert_eq!(calls, 2 * steps - remembered);
    assert!(remembered > steps / 20 && admitted > steps / 20, "{remembered}, {admitted}");
}
