//! The cost of a request: configured in the rule, taken from the request, or taken from its
//! response.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod common;

use std::sync::Arc;

use common::{clock, facts, limiter, poll_ready, reading_summary};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, single_node};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{Decision, DeferredCharge};
use tidegate_rules::{BodyBytes, CostSource, Rule};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

const TOKENS: &str = "rules:
  - { id: tokens, key_by: ip, limit: 1000/h using fixed_window, cost: { response_header: x-tokens, max: 500, estimate: 10 } }
  - { id: requests, key_by: ip, limit: 5/h using fixed_window }";

/// A document with a single rule, which counts tokens, and the given `on_fail`.
fn only_tokens(on_fail: &str) -> String {
    format!(
        "rules: [{{ id: tokens, key_by: ip, limit: 1000/h using fixed_window, on_fail: {on_fail}, \
         cost: {{ response_header: x-tokens, max: 500, estimate: 10 }} }}]"
    )
}

fn decide(node: &TestNode) -> Decision {
    poll_ready(node.limiter.decide(&facts(IP), 1))
}

fn deferred_charge(node: &TestNode) -> DeferredCharge {
    let mut decision = decide(node);
    assert!(decision.is_allowed() && decision.has_deferred_cost());
    decision.take_deferred_charge().unwrap()
}

fn peek(node: &TestNode) -> Vec<String> {
    reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1)))
}

fn response_tokens(tokens: &'static str) -> impl Fn(&Rule) -> Option<u64> {
    move |rule| rule.cost().response_cost(|_| [tokens.as_bytes()], BodyBytes::default())
}

#[test]
fn request_cost_applies_only_where_configured() {
    let (limiter, _) = limiter(
        "rules:
           - { id: fixed, key_by: ip, limit: 100/h using fixed_window, cost: 5 }
           - { id: header, key_by: ip, limit: 100/h using fixed_window, cost: { header: x-cost, max: 50 } }
           - { id: body, key_by: ip, limit: 100/h using fixed_window, cost: { body: 1KiB } }
           - { id: after, key_by: ip, limit: 100/h using fixed_window, cost: { response: 1KiB, estimate: 3 } }",
    );
    let headers = |name: &str| (name == "x-cost").then_some(&b"20"[..]);
    let request = |rule: &Rule| rule.cost().request_cost(headers, Some(4_097));
    let decision = poll_ready(limiter.decide_with_rules(limiter.rules(), &facts(IP), request));
    let left = ["fixed allow 95", "header allow 80", "body allow 95", "after allow 97"];
    assert_eq!(reading_summary(&decision), left);
    // A caller that supplies one cost for all rules.
    let decision = poll_ready(limiter.decide(&facts(IP), 2));
    let left = ["fixed allow 85", "header allow 78", "body allow 93", "after allow 91"];
    assert_eq!(reading_summary(&decision), left);
    let free = poll_ready(limiter.decide_with_rules(limiter.rules(), &facts(IP), |_| 0));
    let left = ["fixed allow 80", "header allow 77", "body allow 92", "after allow 88"];
    assert_eq!(reading_summary(&free), left, "the cost is at least 1");
    let explained = poll_ready(limiter.explain(&facts(IP), 1));
    let limit = "100 per 1h by fixed_window, cost from the request header x-cost, at most 50";
    assert_eq!(explained.rules[1].limit, limit);
}

/// I9: the rule set used to extract the facts also decides.
#[test]
fn request_keeps_its_initial_rule_set() {
    let (limiter, _) = limiter("rules: [{ id: old, key_by: ip, limit: 5/h }]");
    let initial = limiter.rules();
    poll_ready(limiter.install(compile_rules("rules: [{ id: new, key_by: ip, limit: 7/h }]")))
        .unwrap();
    let decision = poll_ready(limiter.decide_with_rules(Arc::clone(&initial), &facts(IP), |_| 1));
    assert_eq!(reading_summary(&decision), ["old allow 4"]);
    assert_eq!(decision.rules_version(), initial.version());
}

#[test]
fn missing_cost_is_charged_after_the_response() {
    let node = single_node(TOKENS, &clock());
    let deferred = deferred_charge(&node);
    assert_eq!(deferred.rules().map(Rule::id).collect::<Vec<_>>(), ["tokens"]);
    assert_eq!(peek(&node), ["tokens allow 990", "requests allow 4"]);
    poll_ready(node.limiter.settle_deferred(deferred, response_tokens("250")));
    assert_eq!(peek(&node), ["tokens allow 750", "requests allow 4"]);
}

#[test]
fn surplus_cost_is_refunded_after_the_response() {
    let node = single_node(TOKENS, &clock());
    poll_ready(node.limiter.settle_deferred(deferred_charge(&node), response_tokens("4")));
    assert_eq!(peek(&node)[0], "tokens allow 996");
    poll_ready(node.limiter.settle_deferred(deferred_charge(&node), response_tokens("0")));
    assert_eq!(peek(&node), ["tokens allow 996", "requests allow 3"]);
}

#[test]
fn estimate_stays_without_actual_cost() {
    let node = single_node(TOKENS, &clock());
    for tokens in ["10", "lots", ""] {
        let before = peek(&node);
        let deferred = deferred_charge(&node);
        node.store.take_recorded_calls();
        poll_ready(node.limiter.settle_deferred(deferred, response_tokens(tokens)));
        assert_eq!(node.store.take_recorded_calls(), [], "{tokens}: no store call is needed");
        assert_ne!(peek(&node), before);
    }
    drop(deferred_charge(&node));
    assert_eq!(peek(&node)[0], "tokens allow 960");
}

#[test]
fn cost_above_estimate_caps_debt_at_limit() {
    let clock = clock();
    let node = single_node(
        "rules: [{ id: r, key_by: ip, limit: 10/s, cost: { response: 1KiB } }]",
        &clock,
    );
    let body = BodyBytes { response: Some(1 << 30), request: None };
    let none = |_: &str| None::<&[u8]>;
    poll_ready(
        node.limiter
            .settle_deferred(deferred_charge(&node), |rule| rule.cost().response_cost(none, body)),
    );
    assert_eq!(peek(&node), ["r deny 0"]);
    clock.advance(Micros::from_millis(1_099));
    assert_eq!(peek(&node), ["r deny 0"]);
    clock.advance(Micros::from_millis(1));
    assert_eq!(peek(&node), ["r allow 1"]);
}

/// The size of a chunked body is known only after it was received.
#[test]
fn chunked_body_is_charged_by_actual_size() {
    let (limiter, _) = limiter(
        "rules: [{ id: r, key_by: ip, limit: 100/h using fixed_window, cost: { body: 1KiB } }]",
    );
    let none = |_: &str| None::<&[u8]>;
    let mut decision = poll_ready(limiter.decide_with_rules(limiter.rules(), &facts(IP), |rule| {
        rule.cost().request_cost(none, None)
    }));
    assert_eq!(reading_summary(&decision), ["r allow 99"]);
    let body = BodyBytes { request: Some(10_000), response: None };
    let deferred = decision.take_deferred_charge().unwrap();
    poll_ready(limiter.settle_deferred(deferred, |rule| rule.cost().response_cost(none, body)));
    assert_eq!(reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1))), ["r allow 90"]);
}

#[test]
fn deferred_charge_is_excluded_from_decision_refund() {
    let node = single_node(TOKENS, &clock());
    let mut decision = decide(&node);
    let deferred = decision.take_deferred_charge().unwrap();
    assert!(!decision.has_deferred_cost() && decision.take_deferred_charge().is_none());
    poll_ready(node.limiter.refund_decision(decision));
    assert_eq!(peek(&node), ["tokens allow 990", "requests allow 5"]);
    poll_ready(node.limiter.settle_deferred(deferred, response_tokens("30")));
    assert_eq!(peek(&node)[0], "tokens allow 970");
}

#[test]
fn refused_request_has_no_deferred_charge() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 10/s, cost: 2 }]");
    let mut decision = poll_ready(limiter.decide(&facts(IP), 1));
    assert!(!decision.has_deferred_cost() && decision.take_deferred_charge().is_none());
    let node = single_node(TOKENS, &clock());
    poll_ready(node.limiter.force(&facts(IP), Some("requests"), 5));
    assert!(!decide(&node).has_deferred_cost());
}

#[test]
fn shadow_rules_are_charged_deferred_cost() {
    let node = single_node(
        "rules: [{ id: r, key_by: ip, mode: shadow, limit: 100/h using fixed_window, cost: { response_header: x, max: 500 } }]",
        &clock(),
    );
    poll_ready(node.limiter.settle_deferred(deferred_charge(&node), response_tokens("99")));
    assert_eq!(peek(&node), ["r allow 1"]);
    poll_ready(node.limiter.settle_deferred(deferred_charge(&node), response_tokens("400")));
    let mut over = decide(&node);
    assert!(over.is_allowed(), "a shadow rule does not refuse");
    assert!(over.take_deferred_charge().is_none(), "a request that it would refuse is not charged");
}

#[test]
fn outage_drops_missing_cost_without_local_share() {
    for (on_fail, settled) in [("allow", 990), ("deny", 990), ("local", 750)] {
        let node = single_node(&only_tokens(on_fail), &clock());
        let deferred = deferred_charge(&node);
        node.store.set_fault(StoreFault::Unreachable);
        poll_ready(node.limiter.settle_deferred(deferred, response_tokens("250")));
        assert_eq!(node.limiter.has_unsettled(), on_fail == "local");
        if on_fail == "local" {
            assert_eq!(peek(&node), ["tokens allow 750"], "charged to the local share");
        }
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), [format!("tokens allow {settled}")], "{on_fail}");
    }
}

#[test]
fn outage_keeps_surplus_cost_charged() {
    for on_fail in ["allow", "local"] {
        let node = single_node(&only_tokens(on_fail), &clock());
        let deferred = deferred_charge(&node);
        node.store.set_fault(StoreFault::Unreachable);
        poll_ready(node.limiter.settle_deferred(deferred, response_tokens("3")));
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), ["tokens allow 990"], "{on_fail}");
    }
}

/// The store may be reachable or unreachable when the response arrives, after it was unreachable at
/// the decision.
#[test]
fn locally_admitted_cost_is_corrected_after_outage() {
    for recovered in [false, true] {
        for (tokens, settled) in [("250", 750), ("3", 997)] {
            let node = single_node(&only_tokens("local"), &clock());
            node.store.set_fault(StoreFault::Unreachable);
            let deferred = deferred_charge(&node);
            if recovered {
                node.store.set_fault(StoreFault::None);
            }
            poll_ready(node.limiter.settle_deferred(deferred, response_tokens(tokens)));
            node.store.set_fault(StoreFault::None);
            poll_ready(node.limiter.settle());
            assert_eq!(
                peek(&node),
                [format!("tokens allow {settled}")],
                "recovered: {recovered}, tokens: {tokens}"
            );
            assert!(!node.limiter.has_unsettled());
        }
    }
}

/// A deferred charge whose response is lost is not sent again: it may have been executed.
#[test]
fn unanswered_deferred_charge_is_not_resent() {
    let node = single_node(&only_tokens("allow"), &clock());
    let deferred = deferred_charge(&node);
    node.store.set_fault(StoreFault::AnswerLost);
    node.store.take_recorded_calls();
    poll_ready(node.limiter.settle_deferred(deferred, response_tokens("250")));
    assert_eq!(node.store.take_recorded_calls(), [(Op::Force, 1)]);
    node.store.set_fault(StoreFault::None);
    assert_eq!(peek(&node), ["tokens allow 750"]);
}

/// Under the old policy, a full bucket would have drained for 5 seconds at 10 per second.
#[test]
fn deferred_charge_uses_current_rules() {
    let clock = clock();
    let bucket = |rate: &str| {
        format!(
            "rules: [{{ id: r, key_by: ip, limit: {rate} burst 100, cost: {{ response_header: x, max: 500 }} }}]"
        )
    };
    let node = single_node(&bucket("36000/h"), &clock);
    let deferred = deferred_charge(&node);
    poll_ready(node.limiter.force(&facts(IP), None, 99));
    poll_ready(node.limiter.install(compile_rules(&bucket("1/h")))).unwrap();
    clock.advance(Micros::from_secs(5));
    poll_ready(node.limiter.settle_deferred(deferred, response_tokens("2")));
    assert_eq!(peek(&node), ["r deny 0"]);
    // A counter that no active rule uses is not changed.
    let removed = {
        poll_ready(node.limiter.reset(&facts(IP), None));
        deferred_charge(&node)
    };
    poll_ready(
        node.limiter.install(compile_rules("rules: [{ id: other, key_by: ip, limit: 5/h }]")),
    )
    .unwrap();
    node.store.take_recorded_calls();
    poll_ready(node.limiter.settle_deferred(removed, response_tokens("50")));
    assert_eq!(node.store.take_recorded_calls(), []);
}

/// Reordering rules must not change which counter a receipt refers to.
#[test]
fn receipts_find_counters_after_rule_reorder() {
    let tokens = "{ id: tokens, key_by: ip, limit: 1000/h using fixed_window, \
                  cost: { response_header: x, max: 500, estimate: 10 } }";
    let first = "{ id: first, key_by: ip, limit: 50/h using fixed_window }";
    let node = single_node(&format!("rules: [{tokens}]"), &clock());
    let (more, less, all) = (deferred_charge(&node), deferred_charge(&node), decide(&node));
    poll_ready(node.limiter.install(compile_rules(&format!("rules: [{first}, {tokens}]"))))
        .unwrap();
    let left = || peek(&node)[1].clone();
    assert_eq!(left(), "tokens allow 970");
    poll_ready(node.limiter.settle_deferred(more, response_tokens("110")));
    assert_eq!(left(), "tokens allow 870");
    poll_ready(node.limiter.settle_deferred(less, response_tokens("3")));
    assert_eq!(left(), "tokens allow 877");
    poll_ready(node.limiter.refund_decision(all));
    assert_eq!(peek(&node), ["first allow 50", "tokens allow 887"]);
}

/// A listener may decide in one task and settle in another, on any thread.
#[test]
fn post_response_futures_are_send() {
    fn assert_send<T: Send + 'static>(_: T) {}
    let (limiter, _) = limiter(TOKENS);
    let limiter = Arc::new(limiter);
    let (shared, header) = (Arc::clone(&limiter), b"7".to_vec());
    assert_send(async move {
        let request = |rule: &Rule| rule.cost().request_cost(|_| [&header[..]], None);
        let mut decision = shared.decide_with_rules(shared.rules(), &facts(IP), request).await;
        let (deferred, slots) = (decision.take_deferred_charge(), decision.take_slots());
        if let Some(mut slots) = slots {
            shared.renew_slots(&mut slots).await;
            shared.release_slots(slots).await;
        }
        if let Some(deferred) = deferred {
            shared.settle_deferred(deferred, |_| Some(2)).await;
        }
    });
}

#[test]
fn deferred_cost_and_slots_are_independent() {
    let (limiter, _) = limiter(
        "rules:
           - { id: slots, key_by: ip, limit: { concurrent: 4 }, cost: { header: x-weight, max: 3 } }
           - { id: tokens, key_by: ip, limit: 100/h using fixed_window, cost: { response_header: x, max: 50 } }
           - { id: plain, key_by: ip, limit: 9/h using fixed_window }",
    );
    let weight = |rule: &Rule| rule.cost().request_cost(|_| [&b"3"[..]], None);
    let mut decision = poll_ready(limiter.decide_with_rules(limiter.rules(), &facts(IP), weight));
    let (deferred, slots) =
        (decision.take_deferred_charge().unwrap(), decision.take_slots().unwrap());
    assert!(matches!(
        deferred.rules().next().map(Rule::cost),
        Some(CostSource::ResponseHeader { .. })
    ));
    let left = || reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left(), ["slots allow 1", "tokens allow 99", "plain allow 8"]);
    assert!(
        !poll_ready(limiter.decide_with_rules(limiter.rules(), &facts(IP), weight)).is_allowed()
    );
    assert_eq!(left(), ["slots allow 1", "tokens allow 99", "plain allow 8"], "all or none");
    poll_ready(limiter.release_slots(slots));
    poll_ready(limiter.settle_deferred(deferred, response_tokens("20")));
    assert_eq!(left(), ["slots allow 4", "tokens allow 80", "plain allow 8"]);
    poll_ready(limiter.refund_decision(decision));
    assert_eq!(left(), ["slots allow 4", "tokens allow 80", "plain allow 9"]);
}
