//! Overrides: keys with individual limits, and subjects known only by their hash.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod common;

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_core::key::Secret;
use tidegate_core::time::Micros;
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules, compile_rules_with_secret};
use tidegate_limiter::Limiter;
use tidegate_rules::{ExternalRecords, OverrideLimit, OverrideRecord, RuleSet, SubjectRecord};

const ACME: &[(&str, &str)] = &[("api_key", "acme"), ("ip", "203.0.113.7")];
const OTHER: &[(&str, &str)] = &[("api_key", "other"), ("ip", "203.0.113.7")];

const HOURLY: &str = "rules: [{ id: r, key_by: api_key, limit: 10/h using fixed_window }]";
const BUCKET: &str = "rules: [{ id: r, key_by: api_key, limit: 60/m burst 100 }]";

const fn requests(requests: u64) -> OverrideLimit {
    OverrideLimit::Requests { requests, burst: None }
}

/// The rules with an override for the first customer.
fn rules_with_override(source: &str, limit: Option<OverrideLimit>) -> RuleSet {
    let set = compile_rules(source);
    let key = set.override_key("r", &facts(ACME)).unwrap();
    let record = |limit| OverrideRecord { rule: "r".to_owned(), key, limit };
    let overrides = limit.map(record).into_iter().collect();
    set.with_records(&ExternalRecords { overrides, ..ExternalRecords::default() }).unwrap()
}

fn install(limiter: &Limiter<ManualMemoryStore>, rules: RuleSet) {
    poll_ready(limiter.install(rules)).unwrap();
}

fn remaining_summary(
    limiter: &Limiter<ManualMemoryStore>,
    pairs: &'static [(&'static str, &'static str)],
) -> Vec<String> {
    reading_summary(&poll_ready(limiter.peek(&facts(pairs), None, 1)))
}

#[test]
fn override_changes_limit_and_keeps_usage() {
    let (limiter, _) = limiter(HOURLY);
    for client in [ACME, OTHER] {
        assert!(poll_ready(limiter.decide(&facts(client), 4)).is_allowed());
    }
    install(&limiter, rules_with_override(HOURLY, Some(requests(50))));
    assert_eq!(
        (remaining_summary(&limiter, ACME), remaining_summary(&limiter, OTHER)),
        (vec!["r allow 46".to_owned()], vec!["r allow 6".to_owned()])
    );
    install(&limiter, rules_with_override(HOURLY, Some(requests(5))));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 1"]);
    assert!(!poll_ready(limiter.decide(&facts(ACME), 2)).is_allowed());
    install(&limiter, rules_with_override(HOURLY, Some(OverrideLimit::Deny)));
    assert_eq!(remaining_summary(&limiter, ACME), ["r deny -"]);
    install(&limiter, rules_with_override(HOURLY, Some(OverrideLimit::Unlimited)));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow -"]);
    install(&limiter, rules_with_override(HOURLY, None));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 6"]);
}

#[test]
fn override_change_refills_nothing() {
    let (limiter, clock) = limiter(BUCKET);
    // A decision stores the bucket's level, drained at the rate that applied until then.
    let take = || reading_summary(&poll_ready(limiter.decide(&facts(ACME), 1)));
    poll_ready(limiter.decide(&facts(ACME), 100));
    clock.advance(Micros::from_secs(10));
    let fast = || Some(OverrideLimit::Requests { requests: 600, burst: Some(100) });
    install(&limiter, rules_with_override(BUCKET, fast()));
    assert_eq!(take(), ["r allow 9"], "10 s at 1 per second, minus this request");
    clock.advance(Micros::from_secs(2));
    // A new rule set with the same override.
    install(&limiter, rules_with_override(BUCKET, fast()));
    assert_eq!(take(), ["r allow 28"], "2 s at 10 per second, minus this request");
    let slow = Some(OverrideLimit::Requests { requests: 6, burst: Some(100) });
    install(&limiter, rules_with_override(BUCKET, slow));
    assert_eq!(take(), ["r allow 27"]);
    clock.advance(Micros::from_secs(20));
    install(&limiter, rules_with_override(BUCKET, None));
    assert_eq!(
        remaining_summary(&limiter, ACME),
        ["r allow 29"],
        "20 s at 0.1 per second, not 1 per second"
    );
    clock.advance(Micros::from_secs(3));
    install(&limiter, rules_with_override(BUCKET, None));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 32"], "3 s at the rule's rate");
    assert_eq!(limiter.rules().override_count(), 1, "the removed override is still remembered");
    clock.advance(Micros::from_secs(100));
    install(&limiter, rules_with_override(BUCKET, None));
    assert_eq!(limiter.rules().override_count(), 0, "dropped once it makes no difference");
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 100"]);
}

#[test]
fn overridden_charge_is_refunded() {
    let (limiter, _) = limiter(HOURLY);
    install(&limiter, rules_with_override(HOURLY, Some(requests(50))));
    let decision = poll_ready(limiter.decide(&facts(ACME), 20));
    install(&limiter, rules_with_override(HOURLY, Some(requests(40))));
    poll_ready(limiter.refund_decision(decision));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 40"]);
}

#[test]
fn invalid_overrides_are_reported() {
    let set = compile_rules(
        "rules:
           - { id: r, key_by: [api_key, ip], limit: 10/h using fixed_window }
           - { id: all, key_by: global, limit: 10/s }
           - { id: none, key_by: ip, limit: { requests: unlimited } }",
    );
    let key = |rule, of| set.override_key(rule, &facts(of)).map_err(|problem| problem.message);
    assert!(key("r", ACME).is_ok());
    let error = |key: Result<_, String>| key.unwrap_err();
    assert_eq!(error(key("x", ACME)), "there is no rule `x`");
    let text = "rule `all` has one counter for all clients; change the rule instead";
    assert_eq!(error(key("all", ACME)), text);
    let text = "rule `r` counts by api_key, ip, but `api_key` is missing";
    assert_eq!(error(key("r", &[("ip", "203.0.113.7")])), text);

    let key = set.override_key("r", &facts(ACME)).unwrap();
    let over = |rule: &str, limit| OverrideRecord { rule: rule.to_owned(), key, limit };
    let overrides = vec![
        over("gone", requests(1)),
        over("r", requests(1)),
        over("r", requests(0)),
        over("r", OverrideLimit::Requests { requests: 5, burst: Some(7) }),
        over("none", requests(5)),
    ];
    let problems =
        set.with_records(&ExternalRecords { overrides, ..ExternalRecords::default() }).unwrap_err();
    let at: Vec<usize> = problems.iter().map(|problem| problem.index).collect();
    assert_eq!(at, [0, 2, 3, 4], "{problems:?}");
}

#[test]
fn override_subject_matches_key_hash() {
    let secret = Secret::from_bytes(b"of the fleet");
    let source = "
identity:
  api_key: { header: x-api-key }
  tier: { subject: api_key, default: free }
subjects: [{ api_key: plain, tier: paid }]
rules: [{ id: paid, match: { tier: paid }, key_by: api_key, limit: 5/h }]";
    let subject = SubjectRecord {
        fact: "api_key".to_owned(),
        hash: SubjectRecord::hash(secret, "api_key", "acme"),
        facts: vec![("tier".to_owned(), "paid".to_owned())],
    };
    let records = ExternalRecords { subjects: vec![subject], ..ExternalRecords::default() };
    let set = compile_rules_with_secret(source, secret).with_records(&records).unwrap();
    let (limiter, _) = limiter("rules: []");
    install(&limiter, set);
    assert_eq!(remaining_summary(&limiter, ACME), ["paid allow 5"]);
    assert_eq!(remaining_summary(&limiter, &[("api_key", "plain")]), ["paid allow 5"]);
    assert!(remaining_summary(&limiter, OTHER).is_empty());
}

/// What has drained since the charge, at the rate of the override, is not refunded.
#[test]
fn refund_after_edit_uses_same_override() {
    let fast = || Some(OverrideLimit::Requests { requests: 600, burst: Some(100) });
    let (limiter, clock) = limiter(BUCKET);
    install(&limiter, rules_with_override(BUCKET, fast()));
    let decision = poll_ready(limiter.decide(&facts(ACME), 100));
    clock.advance(Micros::from_secs(5));
    assert!(poll_ready(limiter.decide(&facts(ACME), 40)).is_allowed());
    install(&limiter, rules_with_override(BUCKET, fast()));
    poll_ready(limiter.refund_decision(decision));
    assert_eq!(remaining_summary(&limiter, ACME), ["r allow 60"], "50 of 100 had drained");
}
