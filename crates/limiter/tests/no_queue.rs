//! Callers that cannot delay a request: a request that would be queued is refused uncharged, with
//! an exact retry time.

mod common;

use std::sync::Arc;

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_core::decision::Retry;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{Decision, Limiter};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

/// A queue that releases ten requests per second and holds at most three.
const QUEUE: &str = "rules:
  - { id: q, key_by: ip, limit: { requests: 10, window: 1s, burst: 3, algorithm: leaky_bucket, queue: true } }
  - { id: wide, key_by: global, limit: 100/h }";

fn retry_after_us(decision: &Decision) -> Option<u64> {
    match decision.tightest()?.1.retry() {
        Retry::After(wait) => Some(wait.get()),
        Retry::Now | Retry::Never => None,
    }
}

#[test]
fn queued_request_gets_exact_retry_after() {
    let (limiter, clock) = limiter(QUEUE);
    let decide = |cost| poll_ready(limiter.decide_no_queue(&facts(IP), cost));
    assert_eq!(reading_summary(&decide(1)), ["q allow 2", "wide allow 99"]);
    let refused = decide(1);
    assert_eq!(
        reading_summary(&refused),
        ["q deny 2", "wide allow 99"],
        "the queue has room, but another request is ahead"
    );
    assert_eq!((retry_after_us(&refused), refused.delay()), (Some(100_000), Micros::ZERO));
    assert_eq!(
        reading_summary(&poll_ready(limiter.peek_no_queue(&facts(IP), None, 1))),
        reading_summary(&refused)
    );
    clock.advance(Micros::new(99_999));
    assert_eq!(retry_after_us(&decide(2)), Some(1), "tight, for any cost");
    clock.advance(Micros::new(1));
    assert!(decide(2).is_allowed(), "sound");
    assert_eq!(decide(4).tightest().unwrap().1.retry(), Retry::Never, "more than the queue holds");
}

#[test]
fn queueing_and_non_queueing_share_a_counter() {
    let (limiter, clock) = limiter(QUEUE);
    let hold = || poll_ready(limiter.decide(&facts(IP), 1));
    assert_eq!(hold().delay(), Micros::ZERO);
    assert_eq!(hold().delay(), Micros::from_millis(100));
    assert_eq!(retry_after_us(&poll_ready(limiter.decide_no_queue(&facts(IP), 1))), Some(200_000));
    assert_eq!(
        hold().delay(),
        Micros::from_millis(200),
        "the refused request took no place in the queue"
    );
    clock.advance(Micros::from_millis(300));
    assert!(poll_ready(limiter.decide_no_queue(&facts(IP), 1)).is_allowed());
}

#[test]
fn local_fallback_does_not_queue() {
    let clock = common::clock();
    let source = "rules: [{ id: q, key_by: ip, on_fail: local, limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]";
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let limiter = Limiter::new(store, compile_rules(source)).with_local(small_store(&clock));
    limiter.store().set_fault(StoreFault::Unreachable);
    let decide = || poll_ready(limiter.decide_no_queue(&facts(IP), 1));
    assert!(decide().is_allowed());
    assert_eq!(retry_after_us(&decide()), Some(100_000));
    let rules = limiter.rules();
    let decide_with =
        |rules| poll_ready(limiter.decide_no_queue_with_rules(rules, &facts(IP), |_| 1));
    assert!(!decide_with(rules.clone()).is_allowed());
    clock.set(Timestamp::from_micros(1_699_999_200_100_000));
    assert!(decide_with(rules).is_allowed());
}
