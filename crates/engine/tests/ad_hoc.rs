//! Buckets that no rule names.

mod common;

use common::flaky::{Fault, Flaky};
use common::{facts, limiter, ready, rules, small};
use std::sync::Arc;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::Secret;
use tidegate_core::policy::PolicyError;
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;
use tidegate_engine::{AdHoc, Limiter, NoPolicy};
use tidegate_rules::Door;

const NO_RULES: &str = "rules: []";

fn quota(requests: u64, seconds: u64, burst: u64) -> Quota {
    Quota::new(requests, Micros::from_secs(seconds)).with_burst(burst)
}

#[test]
fn a_bucket_is_charged_looked_at_and_refills() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let policy = ad_hoc.policy(quota(10, 1, 3)).unwrap();
    let ask = |name: &[u8], cost| {
        let told =
            ready(limiter.charge_ad_hoc(Door::Resp, ad_hoc.key(name), &policy, cost)).unwrap();
        (told.verdict, told.remaining, told.retry)
    };
    assert_eq!(ask(b"a", 2), (Verdict::Allow, 1, Retry::Now));
    assert_eq!(ask(b"a", 0), (Verdict::Allow, 1, Retry::Now), "a look");
    assert_eq!(ask(b"a", 2), (Verdict::Deny, 1, Retry::After(Micros::from_millis(100))));
    assert_eq!(ask(b"a", 4), (Verdict::Deny, 1, Retry::Never));
    assert_eq!(ask(b"b", 0), (Verdict::Allow, 3, Retry::Now), "another key");
    clock.advance(Micros::from_millis(100));
    assert_eq!(ask(b"a", 2), (Verdict::Allow, 0, Retry::Now));
}

#[test]
fn what_was_used_stays_used_whatever_numbers_come() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let key = ad_hoc.key(b"a");
    let ask = |requests, seconds, burst, cost| {
        let policy = ad_hoc.policy(quota(requests, seconds, burst)).unwrap();
        ready(limiter.charge_ad_hoc(Door::Resp, key, &policy, cost)).unwrap()
    };
    assert_eq!(ask(10, 60, 10, 7).remaining, 3);
    assert_eq!(ask(10, 60, 20, 0).remaining, 13, "a larger burst");
    assert_eq!(ask(10, 3_600, 10, 0).remaining, 3, "another rate");
    assert_eq!(ask(10, 3_600, 5, 1).verdict, Verdict::Deny, "a smaller burst");
    clock.advance(Micros::from_secs(60));
    assert_eq!(ask(10, 60, 10, 0).remaining, 10, "all came back");
}

/// I11 across a lowered burst: the wait that is told is the wait.
#[test]
fn a_wait_is_sound_and_tight_after_the_burst_was_lowered() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let key = ad_hoc.key(b"a");
    let ask = |burst, cost| {
        let policy = ad_hoc.policy(quota(7, 60, burst)).unwrap();
        ready(limiter.charge_ad_hoc(Door::Resp, key, &policy, cost)).unwrap()
    };
    assert_eq!(ask(1_000, 1_000).verdict, Verdict::Allow);
    clock.advance(Micros::new(1_234_567));
    let Retry::After(wait) = ask(3, 2).retry else { panic!("refused for a while") };
    clock.advance(Micros::new(wait.get() - 1));
    assert_eq!(ask(3, 2).retry, Retry::After(Micros::new(1)));
    clock.advance(Micros::new(1));
    assert_eq!(ask(3, 2).verdict, Verdict::Allow);
}

#[test]
fn keys_share_nothing_with_those_of_rules() {
    let (limiter, _) = limiter("rules: [{ id: a, key_by: api_key, limit: 5/h }]");
    let ad_hoc = AdHoc::new(Secret::UNSET);
    let policy = ad_hoc.policy(quota(5, 3_600, 5)).unwrap();
    for name in [b"a".as_slice(), b"", b"atoken_bucket", b"api_key"] {
        let told = ready(limiter.charge_ad_hoc(Door::Resp, ad_hoc.key(name), &policy, 5)).unwrap();
        assert_eq!(told.remaining, 0, "{name:?}");
    }
    let of_rule = ready(limiter.decide(&facts(&[("api_key", "a")]), 1));
    assert_eq!(of_rule.tightest().unwrap().1.numbers.unwrap().remaining, 4);
}

#[test]
fn a_store_that_is_gone_gives_no_verdict() {
    let clock = common::clock();
    let store = Flaky::new(Arc::new(small(&clock)), 1);
    let limiter = Limiter::new(store, rules(NO_RULES)).with_local(small(&clock));
    let ad_hoc = AdHoc::new(Secret::UNSET);
    let (key, policy) = (ad_hoc.key(b"a"), ad_hoc.policy(quota(5, 60, 5)).unwrap());
    limiter.store().fault(Fault::Gone);
    assert!(ready(limiter.charge_ad_hoc(Door::Resp, key, &policy, 1)).is_err());
    limiter.store().fault(Fault::None);
    assert_eq!(ready(limiter.charge_ad_hoc(Door::Resp, key, &policy, 1)).unwrap().remaining, 4);
}

#[test]
fn there_is_an_end_to_different_numbers_and_known_ones_go_on() {
    let ad_hoc = AdHoc::new(Secret::UNSET);
    assert_eq!(ad_hoc.policy(quota(0, 1, 1)), Err(NoPolicy::Wrong(PolicyError::ZeroRequests)));
    let kept = (1..=100_000).filter(|n| ad_hoc.policy(quota(*n, 3, 10)).is_ok()).count();
    assert_eq!(kept, 10_000);
    assert!(ad_hoc.policy(quota(77, 3, 10)).is_ok());
    assert_eq!(ad_hoc.policy(quota(77, 3, 11)), Err(NoPolicy::TooMany));
    assert!(NoPolicy::TooMany.to_string().contains("10000"));
}
