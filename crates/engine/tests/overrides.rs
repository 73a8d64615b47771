//! Keys with numbers of their own, and subjects of which only a hash is known.

#![expect(clippy::unwrap_used, reason = "what a test did not expect fails it")]

mod common;

use common::{Memory, facts, limiter, ready, rules, rules_under, told};
use tidegate_core::key::Secret;
use tidegate_core::time::Micros;
use tidegate_engine::Limiter;
use tidegate_rules::{Allowance, OverrideRecord, Records, RuleSet, SubjectRecord};

const ACME: &[(&str, &str)] = &[("api_key", "acme"), ("ip", "203.0.113.7")];
const OTHER: &[(&str, &str)] = &[("api_key", "other"), ("ip", "203.0.113.7")];

const HOURLY: &str = "rules: [{ id: r, key_by: api_key, limit: 10/h using fixed_window }]";
const BUCKET: &str = "rules: [{ id: r, key_by: api_key, limit: 60/m burst 100 }]";

const fn requests(requests: u64) -> Allowance {
    Allowance::Requests { requests, burst: None }
}

/// The rules with these numbers for the first customer.
fn with(source: &str, allows: Option<Allowance>) -> RuleSet {
    let set = rules(source);
    let key = set.override_key("r", &facts(ACME)).unwrap();
    let record = |allows| OverrideRecord { rule: "r".to_owned(), key, allows };
    let overrides = allows.map(record).into_iter().collect();
    set.with_records(&Records { overrides, ..Records::default() }).unwrap()
}

fn install(limiter: &Limiter<Memory>, rules: RuleSet) {
    ready(limiter.install(rules)).unwrap();
}

fn left(limiter: &Limiter<Memory>, of: &'static [(&'static str, &'static str)]) -> Vec<String> {
    told(&ready(limiter.peek(&facts(of), None, 1)))
}

#[test]
fn a_key_has_numbers_of_its_own_and_keeps_what_it_used() {
    let (limiter, _) = limiter(HOURLY);
    for of in [ACME, OTHER] {
        assert!(ready(limiter.decide(&facts(of), 4)).is_allowed());
    }
    install(&limiter, with(HOURLY, Some(requests(50))));
    assert_eq!(
        (left(&limiter, ACME), left(&limiter, OTHER)),
        (vec!["r allow 46".to_owned()], vec!["r allow 6".to_owned()])
    );
    install(&limiter, with(HOURLY, Some(requests(5))));
    assert_eq!(left(&limiter, ACME), ["r allow 1"]);
    assert!(!ready(limiter.decide(&facts(ACME), 2)).is_allowed());
    install(&limiter, with(HOURLY, Some(Allowance::Deny)));
    assert_eq!(left(&limiter, ACME), ["r deny -"]);
    install(&limiter, with(HOURLY, Some(Allowance::Unlimited)));
    assert_eq!(left(&limiter, ACME), ["r allow -"]);
    install(&limiter, with(HOURLY, None));
    assert_eq!(left(&limiter, ACME), ["r allow 6"]);
}

#[test]
fn neither_a_new_nor_a_lost_override_refills_backwards() {
    let (limiter, clock) = limiter(BUCKET);
    // A state is settled when it is written, at the rate that it was written under.
    let take = || told(&ready(limiter.decide(&facts(ACME), 1)));
    ready(limiter.decide(&facts(ACME), 100));
    clock.advance(Micros::from_secs(10));
    let fast = || Some(Allowance::Requests { requests: 600, burst: Some(100) });
    install(&limiter, with(BUCKET, fast()));
    assert_eq!(take(), ["r allow 9"], "ten seconds at one a second, and one taken");
    clock.advance(Micros::from_secs(2));
    // Another rule set, the same override.
    install(&limiter, with(BUCKET, fast()));
    assert_eq!(take(), ["r allow 28"], "two at ten a second");
    let slow = Some(Allowance::Requests { requests: 6, burst: Some(100) });
    install(&limiter, with(BUCKET, slow));
    assert_eq!(take(), ["r allow 27"]);
    clock.advance(Micros::from_secs(20));
    install(&limiter, with(BUCKET, None));
    assert_eq!(
        left(&limiter, ACME),
        ["r allow 29"],
        "twenty at one in ten seconds, not one a second"
    );
    clock.advance(Micros::from_secs(3));
    install(&limiter, with(BUCKET, None));
    assert_eq!(left(&limiter, ACME), ["r allow 32"], "the rule's own rate counts from then on");
    assert_eq!(limiter.rules().overrides(), 1, "it is remembered");
    clock.advance(Micros::from_secs(100));
    install(&limiter, with(BUCKET, None));
    assert_eq!(limiter.rules().overrides(), 0, "until it makes no difference");
    assert_eq!(left(&limiter, ACME), ["r allow 100"]);
}

#[test]
fn what_a_key_was_charged_under_its_own_numbers_is_given_back() {
    let (limiter, _) = limiter(HOURLY);
    install(&limiter, with(HOURLY, Some(requests(50))));
    let decision = ready(limiter.decide(&facts(ACME), 20));
    install(&limiter, with(HOURLY, Some(requests(40))));
    ready(limiter.give_back(decision));
    assert_eq!(left(&limiter, ACME), ["r allow 40"]);
}

#[test]
fn overrides_that_cannot_be_are_told() {
    let set = rules(
        "rules:
           - { id: r, key_by: [api_key, ip], limit: 10/h using fixed_window }
           - { id: all, key_by: global, limit: 10/s }
           - { id: none, key_by: ip, limit: { requests: unlimited } }",
    );
    let key = |rule, of| set.override_key(rule, &facts(of)).map_err(|problem| problem.message);
    assert!(key("r", ACME).is_ok());
    let told = |told: Result<_, String>| told.unwrap_err();
    assert_eq!(told(key("x", ACME)), "there is no rule `x`");
    let text = "rule `all` has one counter for all, so change the rule";
    assert_eq!(told(key("all", ACME)), text);
    let text = "rule `r` counts by api_key, ip, and `api_key` is not said";
    assert_eq!(told(key("r", &[("ip", "203.0.113.7")])), text);

    let key = set.override_key("r", &facts(ACME)).unwrap();
    let over = |rule: &str, allows| OverrideRecord { rule: rule.to_owned(), key, allows };
    let overrides = vec![
        over("gone", requests(1)),
        over("r", requests(1)),
        over("r", requests(0)),
        over("r", Allowance::Requests { requests: 5, burst: Some(7) }),
        over("none", requests(5)),
    ];
    let problems = set.with_records(&Records { overrides, ..Records::default() }).unwrap_err();
    let at: Vec<usize> = problems.iter().map(|problem| problem.at).collect();
    assert_eq!(at, [0, 2, 3, 4], "{problems:?}");
}

#[test]
fn a_subject_is_known_by_the_hash_of_its_key() {
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
        brings: vec![("tier".to_owned(), "paid".to_owned())],
    };
    let records = Records { subjects: vec![subject], ..Records::default() };
    let set = rules_under(secret, source).with_records(&records).unwrap();
    let (limiter, _) = limiter("rules: []");
    install(&limiter, set);
    assert_eq!(left(&limiter, ACME), ["paid allow 5"]);
    assert_eq!(left(&limiter, &[("api_key", "plain")]), ["paid allow 5"]);
    assert!(left(&limiter, OTHER).is_empty());
}
