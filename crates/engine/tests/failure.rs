//! A store that does not answer: every request is answered all the same, as its rules say.

mod common;

use common::flaky::{Fault, Node, alone};
use common::{clock, facts, ready, rules, told};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, Timestamp};
use tidegate_engine::{Decision, Limiter};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

/// A store that is gone.
struct Gone;

impl Store for Gone {
    async fn apply(
        &self,
        _: Op,
        _: &[Charge<'_>],
        _: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        Err(StoreError::nothing("connection refused"))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Err(StoreError::nothing("connection refused"))
    }
}

#[test]
fn each_rule_answers_with_its_on_fail() {
    let limiter = Limiter::new(
        Gone,
        rules(
            "rules:
               - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
               - { id: watched, mode: shadow, key_by: ip, limit: 5/h, on_fail: deny }
               - { id: closed, match: { path: /login }, key_by: ip, limit: 5/h, on_fail: deny }",
        ),
    );
    let passed = ready(limiter.decide(&facts(&[("ip", "203.0.113.7")]), 1));
    assert!(passed.is_allowed());
    assert_eq!(passed.answered_by(), AnsweredBy::Fallback);
    let refused = ready(limiter.decide(&facts(&[("ip", "203.0.113.7"), ("path", "/login")]), 1));
    assert_eq!(told(&refused), ["open allow 5", "watched allow 5", "closed deny 0"]);
    assert_eq!(refused.tightest().expect("a rule").0.id(), "closed");
}

#[test]
fn what_was_not_counted_has_a_time_and_says_so() {
    let clock = clock();
    let node = alone(
        "rules:
           - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
           - { id: closed, key_by: ip, limit: 5/h, on_fail: deny }
           - { id: shared, key_by: ip, limit: 5/h, on_fail: local }",
        &clock,
    );
    node.store.fault(Fault::Gone);
    let refused = decide(&node, 1);
    assert_eq!(refused.now(), Some(clock.now()));
    for (rule, reading) in refused.readings() {
        assert_eq!(reading.numbers.unwrap().now, clock.now(), "{}", rule.id());
        assert_eq!(reading.uncounted, rule.id() != "shared", "{}", rule.id());
    }
    node.store.fault(Fault::None);
    assert!(decide(&node, 1).readings().all(|(_, reading)| !reading.uncounted));
}

#[test]
fn rules_stay_when_the_stores_clock_cannot_be_read() {
    let limiter = Limiter::new(Gone, rules("rules: [{ id: old, key_by: ip, limit: 5/h }]"));
    let installed = ready(limiter.install(rules("rules: [{ id: new, key_by: ip, limit: 5/h }]")));
    assert!(installed.is_err());
    assert_eq!(limiter.rules().rules()[0].id(), "old");
}

/// Two counters in the store and one in a part of it that may be lost.
fn partial(on_fail: &str, lost: &str) -> Node {
    alone(
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

fn decide(node: &Node, cost: u32) -> Decision {
    ready(node.limiter.decide(&facts(IP), cost))
}

fn peek(node: &Node) -> Vec<String> {
    told(&ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn a_request_is_decided_as_one_whatever_its_rules_say_to_a_lost_store() {
    let node = alone(
        "rules:
           - { id: share, key_by: ip, limit: 10/h, on_fail: local }
           - { id: small, key_by: ip, limit: 2/h, on_fail: local }
           - { id: open, key_by: ip, limit: 5/h, on_fail: allow }
           - { id: closed, match: { path: /login }, key_by: ip, limit: 5/h, on_fail: deny }",
        &clock(),
    );
    node.store.fault(Fault::Gone);
    let login = facts(&[("ip", "203.0.113.7"), ("path", "/login")]);
    let refused = ready(node.limiter.decide(&login, 1));
    assert_eq!(
        told(&refused),
        ["share allow 10", "small allow 2", "open allow 5", "closed deny 0"]
    );
    assert!(!node.limiter.owes(), "refused by one, charged to none");
    assert!(decide(&node, 2).is_allowed());
    assert_eq!(told(&decide(&node, 1)), ["share allow 8", "small deny 0", "open allow 5"]);
}

#[test]
fn what_is_charged_always_is_charged_to_a_share_as_well() {
    let node = alone(
        "rules:
           - { id: always, key_by: ip, charge: always, limit: 10/h, on_fail: local }
           - { id: closed, key_by: ip, limit: 5/h, on_fail: deny }",
        &clock(),
    );
    node.store.fault(Fault::Gone);
    assert_eq!(told(&decide(&node, 4)), ["always allow 6", "closed deny 0"]);
    node.store.fault(Fault::None);
    ready(node.limiter.settle());
    assert_eq!(peek(&node)[0], "always allow 6");
}

#[test]
fn what_the_store_charged_is_given_back_when_a_rule_it_lost_refuses() {
    for (on_fail, lost, says) in [("deny", 10, "lost deny 0"), ("local", 1, "lost deny 1")] {
        let node = partial(on_fail, &lost.to_string());
        node.store.fault(Fault::Without(&["lost"]));
        let refused = decide(&node, 2);
        assert_eq!(refused.answered_by(), AnsweredBy::Fallback);
        assert_eq!(told(&refused), ["kept allow 10", "always allow 8", "watched allow 10", says]);
        ready(node.limiter.give_back(refused));
        node.store.fault(Fault::None);
        let left = peek(&node);
        assert_eq!(left[..3], ["kept allow 10", "always allow 10", "watched allow 10"]);
        assert!(!node.limiter.owes());
    }
}

#[test]
fn nothing_is_given_back_that_the_store_refused_to_charge() {
    let node = alone(
        "rules:
           - { id: kept, key_by: ip, limit: 10/h using fixed_window }
           - { id: narrow, key_by: ip, limit: 3/h using fixed_window }
           - { id: lost, key_by: ip, limit: 10/h using fixed_window, on_fail: deny }",
        &clock(),
    );
    assert!(decide(&node, 3).is_allowed());
    node.store.fault(Fault::Without(&["lost"]));
    assert_eq!(told(&decide(&node, 1)), ["kept allow 7", "narrow deny 0", "lost deny 0"]);
    node.store.fault(Fault::None);
    assert_eq!(peek(&node)[0], "kept allow 7");
}

#[test]
fn what_the_store_answered_counts_beside_a_share() {
    let node = partial("local", "10");
    node.store.fault(Fault::Without(&["lost"]));
    let passed = decide(&node, 4);
    assert_eq!(
        told(&passed),
        ["kept allow 6", "always allow 6", "watched allow 6", "lost allow 6"]
    );
    ready(node.limiter.give_back(passed));
    assert_eq!(
        peek(&node),
        ["kept allow 10", "always allow 10", "watched allow 10", "lost allow 10"]
    );
    assert!(!node.limiter.owes());
}

#[test]
fn a_share_is_not_charged_when_the_store_refuses() {
    let node = partial("local", "100");
    node.store.fault(Fault::Without(&["lost"]));
    let refused = decide(&node, 11);
    assert_eq!(
        told(&refused),
        ["kept deny 10", "always deny 0", "watched shadow_deny 10", "lost allow 100"]
    );
    assert!(!node.limiter.owes());
}

#[test]
fn a_remembered_refusal_tells_of_the_refusing_rule_only_and_is_no_receipt() {
    let node = alone(
        "rules:
           - { id: wide, key_by: ip, charge: always, limit: 100/h using fixed_window, on_fail: local }
           - { id: narrow, key_by: ip, limit: 2/h using fixed_window, on_fail: local }",
        &clock(),
    );
    assert!(decide(&node, 2).is_allowed());
    node.store.fault(Fault::Remembers);
    let refused = decide(&node, 1);
    assert_eq!(refused.answered_by(), AnsweredBy::DenyCache);
    assert_eq!(told(&refused), ["wide allow -", "narrow deny 0"]);
    ready(node.limiter.give_back(refused));
    node.store.fault(Fault::None);
    assert_eq!(peek(&node), ["wide allow 98", "narrow deny 0"]);
    node.store.fault(Fault::Gone);
    assert_eq!(peek(&node), ["wide allow 98", "narrow deny 0"], "nor is it in the local buckets");
}

#[test]
fn without_a_local_store_local_lets_pass() {
    let limiter =
        Limiter::new(Gone, rules("rules: [{ id: r, key_by: ip, limit: 1/h, on_fail: local }]"));
    for _ in 0..3 {
        assert!(ready(limiter.decide(&facts(IP), 1)).is_allowed());
    }
    assert!(!limiter.owes());
    assert_eq!(ready(limiter.settle()), 0);
}
