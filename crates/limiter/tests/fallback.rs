//! An unreachable store: every request is still decided, by the `on_fail` of its rules.

mod common;

use common::{clock, facts, poll_ready, reading_summary};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::time::{Clock as _, Micros};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, TestNode, single_node};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{Decision, Limiter};

const FALLBACK_RETRY: Retry = Retry::After(Micros::from_secs(1));

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

#[test]
fn outage_applies_on_fail_of_each_rule() {
    let limiter = Limiter::new(
        FaultyStore::unreachable(),
        compile_rules(
            "rules:
               - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
               - { id: watched, mode: shadow, key_by: ip, limit: 5/h, on_fail: deny }
               - { id: closed, match: { path: /login }, key_by: ip, limit: 5/h, on_fail: deny }",
        ),
    );
    let passed = poll_ready(limiter.decide(&facts(&[("ip", "203.0.113.7")]), 1));
    assert!(passed.is_allowed());
    assert_eq!(passed.answered_by(), AnsweredBy::Fallback);
    let refused =
        poll_ready(limiter.decide(&facts(&[("ip", "203.0.113.7"), ("path", "/login")]), 1));
    assert_eq!(reading_summary(&refused), ["open allow 5", "watched allow 5", "closed deny 0"]);
    assert_eq!(refused.tightest().expect("a rule").0.id(), "closed");
}

#[test]
fn uncounted_reading_has_time_and_flag() {
    let clock = clock();
    let node = single_node(
        "rules:
           - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
           - { id: closed, key_by: ip, limit: 5/h, on_fail: deny }
           - { id: shared, key_by: ip, limit: 5/h, on_fail: local }",
        &clock,
    );
    node.store.set_fault(StoreFault::Unreachable);
    let refused = decide(&node, 1);
    assert_eq!(refused.now(), Some(clock.now()));
    for (rule, reading) in refused.readings() {
        let numbers = reading.numbers.unwrap();
        assert_eq!((numbers.now, numbers.limit), (clock.now(), 5), "{}", rule.id());
        let retry = if rule.id() == "closed" { FALLBACK_RETRY } else { Retry::Now };
        assert_eq!(numbers.retry, retry, "{}", rule.id());
        assert_eq!(reading.uncounted, rule.id() != "shared", "{}", rule.id());
    }
    node.store.set_fault(StoreFault::None);
    assert!(decide(&node, 1).readings().all(|(_, reading)| !reading.uncounted));
}

#[test]
fn install_fails_without_store_clock() {
    let limiter = Limiter::new(
        FaultyStore::unreachable(),
        compile_rules("rules: [{ id: old, key_by: ip, limit: 5/h }]"),
    );
    let installed =
        poll_ready(limiter.install(compile_rules("rules: [{ id: new, key_by: ip, limit: 5/h }]")));
    assert!(installed.is_err());
    assert_eq!(limiter.rules().rules()[0].id(), "old");
}

/// A node with three rules whose counters stay reachable and one, `lost`, whose counter may not be.
fn node_with_partial_outage(on_fail: &str, lost: &str) -> TestNode {
    single_node(
        &format!(
            "rules:
               - {{ id: kept, key_by: ip, limit: 10/h using fixed_window }}
               - {{ id: always, key_by: ip, charge: always, limit: 10/h using fixed_window }}
               - {{ id: watched, mode: shadow, key_by: ip, limit: 10/h using fixed_window }}
               - {{ id: lost, key_by: ip, limit: {lost}/h using fixed_window, on_fail: {on_fail} }}"
        ),
        &clock(),
    )
}

fn decide(node: &TestNode, cost: u32) -> Decision {
    poll_ready(node.limiter.decide(&facts(IP), cost))
}

fn peek(node: &TestNode) -> Vec<String> {
    reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn partial_outage_decides_request_as_one() {
    let node = single_node(
        "rules:
           - { id: share, key_by: ip, limit: 10/h, on_fail: local }
           - { id: small, key_by: ip, limit: 2/h, on_fail: local }
           - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
           - { id: closed, match: { path: /login }, key_by: ip, limit: 5/h, on_fail: deny }",
        &clock(),
    );
    node.store.set_fault(StoreFault::Unreachable);
    let login = facts(&[("ip", "203.0.113.7"), ("path", "/login")]);
    let refused = poll_ready(node.limiter.decide(&login, 1));
    assert_eq!(
        reading_summary(&refused),
        ["share allow 10", "small allow 2", "open allow 5", "closed deny 0"]
    );
    assert!(!node.limiter.has_unsettled(), "refused by one, charged to none");
    assert!(decide(&node, 2).is_allowed());
    assert_eq!(
        reading_summary(&decide(&node, 1)),
        ["share allow 8", "small deny 0", "open allow 5"]
    );
}

#[test]
fn always_charged_rule_charges_local_share() {
    let node = single_node(
        "rules:
           - { id: always, key_by: ip, charge: always, limit: 10/h, on_fail: local }
           - { id: closed, key_by: ip, limit: 5/h, on_fail: deny }",
        &clock(),
    );
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(reading_summary(&decide(&node, 4)), ["always allow 6", "closed deny 0"]);
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.settle());
    assert_eq!(peek(&node)[0], "always allow 6");
}

#[test]
fn store_charge_is_refunded_when_fallback_refuses() {
    for (on_fail, lost, expected) in [("deny", 10, "lost deny 0"), ("local", 1, "lost deny 1")] {
        let node = node_with_partial_outage(on_fail, &lost.to_string());
        node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
        let refused = decide(&node, 2);
        assert_eq!(refused.answered_by(), AnsweredBy::Fallback);
        assert_eq!(
            reading_summary(&refused),
            ["kept allow 10", "always allow 8", "watched allow 10", expected]
        );
        poll_ready(node.limiter.refund_decision(refused));
        node.store.set_fault(StoreFault::None);
        let left = peek(&node);
        assert_eq!(left[..3], ["kept allow 10", "always allow 10", "watched allow 10"]);
        assert!(!node.limiter.has_unsettled());
    }
}

#[test]
fn store_refusal_triggers_no_refund() {
    let node = single_node(
        "rules:
           - { id: kept, key_by: ip, limit: 10/h using fixed_window }
           - { id: narrow, key_by: ip, limit: 3/h using fixed_window }
           - { id: lost, key_by: ip, limit: 10/h using fixed_window, on_fail: deny }",
        &clock(),
    );
    assert!(decide(&node, 3).is_allowed());
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    assert_eq!(
        reading_summary(&decide(&node, 1)),
        ["kept allow 7", "narrow deny 0", "lost deny 0"]
    );
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node)[0], "kept allow 7");
}

#[test]
fn store_answer_combines_with_local_share() {
    let node = node_with_partial_outage("local", "10");
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    let passed = decide(&node, 4);
    assert_eq!(
        reading_summary(&passed),
        ["kept allow 6", "always allow 6", "watched allow 6", "lost allow 6"]
    );
    poll_ready(node.limiter.refund_decision(passed));
    assert_eq!(
        peek(&node),
        ["kept allow 10", "always allow 10", "watched allow 10", "lost allow 10"]
    );
    assert!(!node.limiter.has_unsettled());
}

#[test]
fn store_refusal_charges_no_local_share() {
    let node = node_with_partial_outage("local", "100");
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    let refused = decide(&node, 11);
    assert_eq!(
        reading_summary(&refused),
        ["kept deny 10", "always deny 0", "watched shadow_deny 10", "lost allow 100"]
    );
    assert!(!node.limiter.has_unsettled());
}

#[test]
fn cached_refusal_reports_only_refusing_rule() {
    let node = single_node(
        "rules:
           - { id: wide, key_by: ip, charge: always, limit: 100/h using fixed_window, on_fail: local }
           - { id: narrow, key_by: ip, limit: 2/h using fixed_window, on_fail: local }",
        &clock(),
    );
    assert!(decide(&node, 2).is_allowed());
    node.store.set_fault(StoreFault::DenyCached);
    let refused = decide(&node, 1);
    assert_eq!(refused.answered_by(), AnsweredBy::DenyCache);
    assert_eq!(reading_summary(&refused), ["wide allow -", "narrow deny 0"]);
    poll_ready(node.limiter.refund_decision(refused));
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node), ["wide allow 98", "narrow deny 0"]);
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(
        peek(&node),
        ["wide allow 98", "narrow deny 0"],
        "the local buckets were not charged either"
    );
}

#[test]
fn on_fail_local_allows_without_local_store() {
    let limiter = Limiter::new(
        FaultyStore::unreachable(),
        compile_rules("rules: [{ id: r, key_by: ip, limit: 1/h, on_fail: local }]"),
    );
    for _ in 0..3 {
        assert!(poll_ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    assert!(!limiter.has_unsettled());
    assert_eq!(poll_ready(limiter.settle()), 0);
}

/// Such a rule allows requests, and nothing counts them.
#[test]
fn local_rule_without_share_counts_nothing() {
    let rules = compile_rules("rules: [{ id: r, key_by: ip, limit: 2/h, on_fail: local }]");
    let limiter = Limiter::new(FaultyStore::unreachable(), rules);
    for _ in 0..5 {
        let decision = poll_ready(limiter.decide(&facts(IP), 1));
        assert!(decision.is_allowed() && decision.readings().all(|(_, one)| one.uncounted));
        assert_eq!(decision.charged_at(), None);
    }
}

/// Without a local store there is no other clock.
#[test]
fn decision_without_clock_has_no_time() {
    let rules = compile_rules("rules: [{ id: r, key_by: ip, limit: 5/h, on_fail: allow }]");
    let decision =
        poll_ready(Limiter::new(FaultyStore::unreachable(), rules).decide(&facts(IP), 1));
    assert_eq!((decision.is_allowed(), decision.now()), (true, None));
}
