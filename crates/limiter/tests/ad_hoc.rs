//! Ad-hoc buckets, which belong to no rule.

mod common;

use common::{facts, limiter, poll_ready};
use std::sync::Arc;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::Secret;
use tidegate_core::policy::PolicyError;
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{AdHoc, AdHocPolicyError, Limiter};
use tidegate_rules::ApiKind;

const NO_RULES: &str = "rules: []";

fn quota(requests: u64, seconds: u64, burst: u64) -> Quota {
    Quota::new(requests, Micros::from_secs(seconds)).with_burst(burst)
}

#[test]
fn bucket_charges_peeks_and_refills() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let policy = ad_hoc.policy(quota(10, 1, 3)).unwrap();
    let charge = |name: &[u8], cost| {
        let reading =
            poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, ad_hoc.key(name), &policy, cost))
                .unwrap();
        (reading.verdict, reading.remaining, reading.retry)
    };
    assert_eq!(charge(b"a", 2), (Verdict::Allow, 1, Retry::Now));
    assert_eq!(charge(b"a", 0), (Verdict::Allow, 1, Retry::Now), "a cost of 0 only reads");
    assert_eq!(charge(b"a", 2), (Verdict::Deny, 1, Retry::After(Micros::from_millis(100))));
    assert_eq!(charge(b"a", 4), (Verdict::Deny, 1, Retry::Never));
    assert_eq!(charge(b"b", 0), (Verdict::Allow, 3, Retry::Now), "another key");
    clock.advance(Micros::from_millis(100));
    assert_eq!(charge(b"a", 2), (Verdict::Allow, 0, Retry::Now));
}

#[test]
fn usage_survives_changed_quota() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let key = ad_hoc.key(b"a");
    let charge = |requests, seconds, burst, cost| {
        let policy = ad_hoc.policy(quota(requests, seconds, burst)).unwrap();
        poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, cost)).unwrap()
    };
    assert_eq!(charge(10, 60, 10, 7).remaining, 3);
    assert_eq!(charge(10, 60, 20, 0).remaining, 13, "a larger burst");
    assert_eq!(charge(10, 3_600, 10, 0).remaining, 3, "another rate");
    assert_eq!(charge(10, 3_600, 5, 1).verdict, Verdict::Deny, "a smaller burst");
    clock.advance(Micros::from_secs(60));
    assert_eq!(charge(10, 60, 10, 0).remaining, 10, "everything has drained");
}

/// I11 across a lowered burst: the returned wait is exact.
#[test]
fn retry_after_is_tight_after_burst_decrease() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let key = ad_hoc.key(b"a");
    let charge = |burst, cost| {
        let policy = ad_hoc.policy(quota(7, 60, burst)).unwrap();
        poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, cost)).unwrap()
    };
    assert_eq!(charge(1_000, 1_000).verdict, Verdict::Allow);
    clock.advance(Micros::new(1_234_567));
    let Retry::After(wait) = charge(3, 2).retry else {
        panic!("must be refused with a finite wait")
    };
    clock.advance(Micros::new(wait.get() - 1));
    assert_eq!(charge(3, 2).retry, Retry::After(Micros::new(1)));
    clock.advance(Micros::new(1));
    assert_eq!(charge(3, 2).verdict, Verdict::Allow);
}

#[test]
fn ad_hoc_keys_are_separate_from_rules() {
    let (limiter, _) = limiter("rules: [{ id: a, key_by: api_key, limit: 5/h }]");
    let ad_hoc = AdHoc::new(Secret::UNSET);
    let policy = ad_hoc.policy(quota(5, 3_600, 5)).unwrap();
    for name in [b"a".as_slice(), b"", b"atoken_bucket", b"api_key"] {
        let reading =
            poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, ad_hoc.key(name), &policy, 5)).unwrap();
        assert_eq!(reading.remaining, 0, "{name:?}");
    }
    let by_rule = poll_ready(limiter.decide(&facts(&[("api_key", "a")]), 1));
    assert_eq!(by_rule.tightest().unwrap().1.numbers.unwrap().remaining, 4);
}

#[test]
fn unreachable_store_returns_error() {
    let clock = common::clock();
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let limiter = Limiter::new(store, compile_rules(NO_RULES)).with_local(small_store(&clock));
    let ad_hoc = AdHoc::new(Secret::UNSET);
    let (key, policy) = (ad_hoc.key(b"a"), ad_hoc.policy(quota(5, 60, 5)).unwrap());
    limiter.store().set_fault(StoreFault::Unreachable);
    assert!(poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, 1)).is_err());
    limiter.store().set_fault(StoreFault::None);
    assert_eq!(
        poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, 1)).unwrap().remaining,
        4
    );
}

#[test]
fn policy_limit_rejects_new_quotas_only() {
    let ad_hoc = AdHoc::new(Secret::UNSET);
    assert_eq!(
        ad_hoc.policy(quota(0, 1, 1)),
        Err(AdHocPolicyError::Invalid(PolicyError::ZeroRequests))
    );
    let kept = (1..=100_000).filter(|n| ad_hoc.policy(quota(*n, 3, 10)).is_ok()).count();
    assert_eq!(kept, 10_000);
    assert!(ad_hoc.policy(quota(77, 3, 10)).is_ok());
    assert_eq!(ad_hoc.policy(quota(77, 3, 11)), Err(AdHocPolicyError::TooMany));
    assert!(AdHocPolicyError::TooMany.to_string().contains("10000"));
}

#[test]
fn refund_gives_back_at_most_what_is_used() {
    let ((limiter, clock), ad_hoc) = (limiter(NO_RULES), AdHoc::new(Secret::UNSET));
    let (key, policy) = (ad_hoc.key(b"a"), ad_hoc.policy(quota(60, 60, 10)).unwrap());
    let charged = poll_ready(limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, 8)).unwrap();
    assert_eq!((charged.limit, charged.remaining), (10, 2));
    clock.advance(Micros::from_secs(2));
    let refund =
        |amount| poll_ready(limiter.refund_ad_hoc(key, &policy, amount)).unwrap().remaining;
    assert_eq!(refund(3), 7, "2 drained, and 3 came back");
    assert_eq!(refund(u64::MAX), 10);
}
