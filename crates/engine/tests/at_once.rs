//! Doors that cannot hold a request: who would have to wait is refused, uncharged, and told how long.

mod common;

use std::sync::Arc;

use common::flaky::{Fault, Flaky};
use common::{facts, limiter, ready, rules, small, told};
use tidegate_core::decision::Retry;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_engine::{Decision, Limiter};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

/// Ten a second leave, and three may be in line.
const QUEUE: &str = "rules:
  - { id: q, key_by: ip, limit: { requests: 10, window: 1s, burst: 3, algorithm: leaky_bucket, queue: true } }
  - { id: wide, key_by: global, limit: 100/h }";

fn wait(decision: &Decision) -> Option<u64> {
    match decision.tightest()?.1.retry() {
        Retry::After(wait) => Some(wait.get()),
        Retry::Now | Retry::Never => None,
    }
}

#[test]
fn a_request_that_would_have_to_wait_is_refused_for_just_so_long_and_charges_nothing() {
    let (limiter, clock) = limiter(QUEUE);
    let ask = |cost| ready(limiter.decide_at_once(&facts(IP), cost));
    assert_eq!(told(&ask(1)), ["q allow 2", "wide allow 99"]);
    let refused = ask(1);
    assert_eq!(
        told(&refused),
        ["q deny 2", "wide allow 99"],
        "there is room, but one is before it"
    );
    assert_eq!((wait(&refused), refused.delay()), (Some(100_000), Micros::ZERO));
    assert_eq!(told(&ready(limiter.peek_at_once(&facts(IP), None, 1))), told(&refused));
    clock.advance(Micros::new(99_999));
    assert_eq!(wait(&ask(2)), Some(1), "tight, whatever it costs");
    clock.advance(Micros::new(1));
    assert!(ask(2).is_allowed(), "sound");
    assert_eq!(ask(4).tightest().unwrap().1.retry(), Retry::Never, "more than are ever in line");
}

#[test]
fn whoever_can_hold_a_request_stands_in_the_same_line() {
    let (limiter, clock) = limiter(QUEUE);
    let hold = || ready(limiter.decide(&facts(IP), 1));
    assert_eq!(hold().delay(), Micros::ZERO);
    assert_eq!(hold().delay(), Micros::from_millis(100));
    assert_eq!(wait(&ready(limiter.decide_at_once(&facts(IP), 1))), Some(200_000));
    assert_eq!(hold().delay(), Micros::from_millis(200), "nobody took its place");
    clock.advance(Micros::from_millis(300));
    assert!(ready(limiter.decide_at_once(&facts(IP), 1)).is_allowed());
}

#[test]
fn a_local_share_holds_nobody_either() {
    let clock = common::clock();
    let source = "rules: [{ id: q, key_by: ip, on_fail: local, limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]";
    let store = Flaky::new(Arc::new(small(&clock)), 1);
    let limiter = Limiter::new(store, rules(source)).with_local(small(&clock));
    limiter.store().fault(Fault::Gone);
    let ask = || ready(limiter.decide_at_once(&facts(IP), 1));
    assert!(ask().is_allowed());
    assert_eq!(wait(&ask()), Some(100_000));
    let rules = limiter.rules();
    let under = |rules| ready(limiter.decide_at_once_under(rules, &facts(IP), |_| 1));
    assert!(!under(rules.clone()).is_allowed());
    clock.set(Timestamp::from_micros(1_699_999_200_100_000));
    assert!(under(rules).is_allowed());
}
