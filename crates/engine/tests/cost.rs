//! What a request costs: told by the rule, by the request, or only by its response.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;

use std::sync::Arc;

use common::flaky::{Fault, Node, alone};
use common::{clock, facts, limiter, ready, rules, told};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_engine::{Bill, Decision};
use tidegate_rules::{BodyBytes, Cost, Rule};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

const TOKENS: &str = "rules:
  - { id: tokens, key_by: ip, limit: 1000/h using fixed_window, cost: { response_header: x-tokens, max: 500, estimate: 10 } }
  - { id: requests, key_by: ip, limit: 5/h using fixed_window }";

/// The only rule of a document that counts tokens, with a word for when the store is gone.
fn only_tokens(on_fail: &str) -> String {
    format!(
        "rules: [{{ id: tokens, key_by: ip, limit: 1000/h using fixed_window, on_fail: {on_fail}, \
         cost: {{ response_header: x-tokens, max: 500, estimate: 10 }} }}]"
    )
}

fn decide(node: &Node) -> Decision {
    ready(node.limiter.decide(&facts(IP), 1))
}

fn bill(node: &Node) -> Bill {
    let mut decision = decide(node);
    assert!(decision.is_allowed() && decision.awaits_cost());
    decision.take_bill().unwrap()
}

fn peek(node: &Node) -> Vec<String> {
    told(&ready(node.limiter.peek(&facts(IP), None, 1)))
}

fn used(tokens: &'static str) -> impl Fn(&Rule) -> Option<u64> {
    move |rule| rule.cost().of_response(|_| [tokens.as_bytes()], BodyBytes::default())
}

#[test]
fn a_rule_asks_the_request_only_where_it_says_so() {
    let (limiter, _) = limiter(
        "rules:
           - { id: fixed, key_by: ip, limit: 100/h using fixed_window, cost: 5 }
           - { id: header, key_by: ip, limit: 100/h using fixed_window, cost: { header: x-cost, max: 50 } }
           - { id: body, key_by: ip, limit: 100/h using fixed_window, cost: { body: 1KiB } }
           - { id: after, key_by: ip, limit: 100/h using fixed_window, cost: { response: 1KiB, estimate: 3 } }",
    );
    let headers = |name: &str| (name == "x-cost").then_some(&b"20"[..]);
    let request = |rule: &Rule| rule.cost().of_request(headers, Some(4_097));
    let decision = ready(limiter.decide_under(limiter.rules(), &facts(IP), request));
    let left = ["fixed allow 95", "header allow 80", "body allow 95", "after allow 97"];
    assert_eq!(told(&decision), left);
    // One who knows but one cost, and how many requests it is.
    let decision = ready(limiter.decide(&facts(IP), 2));
    let left = ["fixed allow 85", "header allow 78", "body allow 93", "after allow 91"];
    assert_eq!(told(&decision), left);
    let free = ready(limiter.decide_under(limiter.rules(), &facts(IP), |_| 0));
    let left = ["fixed allow 80", "header allow 77", "body allow 92", "after allow 88"];
    assert_eq!(told(&free), left, "nothing costs nothing");
    let explained = ready(limiter.explain(&facts(IP), 1));
    let limit = "100 per 1h by fixed_window, cost told by the header x-cost, at most 50";
    assert_eq!(explained.rules[1].limit, limit);
}

/// I9: what the facts were found under is what decides.
#[test]
fn a_request_is_decided_under_the_rules_it_began_with() {
    let (limiter, _) = limiter("rules: [{ id: old, key_by: ip, limit: 5/h }]");
    let began = limiter.rules();
    ready(limiter.install(rules("rules: [{ id: new, key_by: ip, limit: 7/h }]"))).unwrap();
    let decision = ready(limiter.decide_under(Arc::clone(&began), &facts(IP), |_| 1));
    assert_eq!(told(&decision), ["old allow 4"]);
    assert_eq!(decision.rules_version(), began.version());
}

#[test]
fn what_is_missing_is_charged_when_the_response_is_known_and_only_to_whom_it_concerns() {
    let node = alone(TOKENS, &clock());
    let bill = bill(&node);
    assert_eq!(bill.rules().map(Rule::id).collect::<Vec<_>>(), ["tokens"]);
    assert_eq!(peek(&node), ["tokens allow 990", "requests allow 4"]);
    ready(node.limiter.charge_after(bill, used("250")));
    assert_eq!(peek(&node), ["tokens allow 750", "requests allow 4"]);
}

#[test]
fn what_was_too_much_is_given_back_also_all_of_it() {
    let node = alone(TOKENS, &clock());
    ready(node.limiter.charge_after(bill(&node), used("4")));
    assert_eq!(peek(&node)[0], "tokens allow 996");
    ready(node.limiter.charge_after(bill(&node), used("0")));
    assert_eq!(peek(&node), ["tokens allow 996", "requests allow 3"]);
}

#[test]
fn the_estimate_stays_where_nothing_is_told() {
    let node = alone(TOKENS, &clock());
    for tokens in ["10", "lots", ""] {
        let before = peek(&node);
        let bill = bill(&node);
        node.store.asked();
        ready(node.limiter.charge_after(bill, used(tokens)));
        assert_eq!(node.store.asked(), [], "{tokens}: nobody needs to be asked");
        assert_ne!(peek(&node), before);
    }
    drop(bill(&node));
    assert_eq!(peek(&node)[0], "tokens allow 960");
}

#[test]
fn a_cost_far_above_the_estimate_is_a_debt_of_at_most_one_limit() {
    let clock = clock();
    let node =
        alone("rules: [{ id: r, key_by: ip, limit: 10/s, cost: { response: 1KiB } }]", &clock);
    let seen = BodyBytes { response: Some(1 << 30), request: None };
    let none = |_: &str| None::<&[u8]>;
    ready(node.limiter.charge_after(bill(&node), |rule| rule.cost().of_response(none, seen)));
    assert_eq!(peek(&node), ["r deny 0"]);
    clock.advance(Micros::from_millis(1_099));
    assert_eq!(peek(&node), ["r deny 0"]);
    clock.advance(Micros::from_millis(1));
    assert_eq!(peek(&node), ["r allow 1"]);
}

/// The size of a body that is sent in chunks is known only when it has been sent.
#[test]
fn a_body_that_declares_no_size_is_charged_as_it_was_seen() {
    let (limiter, _) = limiter(
        "rules: [{ id: r, key_by: ip, limit: 100/h using fixed_window, cost: { body: 1KiB } }]",
    );
    let none = |_: &str| None::<&[u8]>;
    let mut decision = ready(
        limiter
            .decide_under(limiter.rules(), &facts(IP), |rule| rule.cost().of_request(none, None)),
    );
    assert_eq!(told(&decision), ["r allow 99"]);
    let seen = BodyBytes { request: Some(10_000), response: None };
    let bill = decision.take_bill().unwrap();
    ready(limiter.charge_after(bill, |rule| rule.cost().of_response(none, seen)));
    assert_eq!(told(&ready(limiter.peek(&facts(IP), None, 1))), ["r allow 90"]);
}

#[test]
fn a_bill_is_taken_once_and_not_given_back_with_the_decision() {
    let node = alone(TOKENS, &clock());
    let mut decision = decide(&node);
    let bill = decision.take_bill().unwrap();
    assert!(!decision.awaits_cost() && decision.take_bill().is_none());
    ready(node.limiter.give_back(decision));
    assert_eq!(peek(&node), ["tokens allow 990", "requests allow 5"]);
    ready(node.limiter.charge_after(bill, used("30")));
    assert_eq!(peek(&node)[0], "tokens allow 970");
}

#[test]
fn requests_without_such_a_rule_have_no_bill_and_refused_ones_neither() {
    let (limiter, _) = limiter("rules: [{ id: r, key_by: ip, limit: 10/s, cost: 2 }]");
    let mut decision = ready(limiter.decide(&facts(IP), 1));
    assert!(!decision.awaits_cost() && decision.take_bill().is_none());
    let node = alone(TOKENS, &clock());
    ready(node.limiter.force(&facts(IP), Some("requests"), 5));
    assert!(!decide(&node).awaits_cost());
}

#[test]
fn rules_in_shadow_are_charged_afterwards_as_well() {
    let node = alone(
        "rules: [{ id: r, key_by: ip, mode: shadow, limit: 100/h using fixed_window, cost: { response_header: x, max: 500 } }]",
        &clock(),
    );
    ready(node.limiter.charge_after(bill(&node), used("99")));
    assert_eq!(peek(&node), ["r allow 1"]);
    ready(node.limiter.charge_after(bill(&node), used("400")));
    let mut over = decide(&node);
    assert!(over.is_allowed(), "it only watches");
    assert!(over.take_bill().is_none(), "what it would have refused is not charged");
}

#[test]
fn while_the_store_is_gone_what_is_missing_is_dropped_unless_there_is_a_share() {
    for (on_fail, settled) in [("allow", 990), ("deny", 990), ("local", 750)] {
        let node = alone(&only_tokens(on_fail), &clock());
        let bill = bill(&node);
        node.store.fault(Fault::Gone);
        ready(node.limiter.charge_after(bill, used("250")));
        assert_eq!(node.limiter.owes(), on_fail == "local");
        if on_fail == "local" {
            assert_eq!(peek(&node), ["tokens allow 750"], "on the share");
        }
        node.store.fault(Fault::None);
        ready(node.limiter.settle());
        assert_eq!(peek(&node), [format!("tokens allow {settled}")], "{on_fail}");
    }
}

#[test]
fn while_the_store_is_gone_what_was_too_much_stays() {
    for on_fail in ["allow", "local"] {
        let node = alone(&only_tokens(on_fail), &clock());
        let bill = bill(&node);
        node.store.fault(Fault::Gone);
        ready(node.limiter.charge_after(bill, used("3")));
        node.store.fault(Fault::None);
        ready(node.limiter.settle());
        assert_eq!(peek(&node), ["tokens allow 990"], "{on_fail}");
    }
}

/// The second phase may find another world than the first.
#[test]
fn what_a_share_admitted_is_corrected_whether_the_store_is_back_or_not() {
    for back in [false, true] {
        for (tokens, settled) in [("250", 750), ("3", 997)] {
            let node = alone(&only_tokens("local"), &clock());
            node.store.fault(Fault::Gone);
            let bill = bill(&node);
            if back {
                node.store.fault(Fault::None);
            }
            ready(node.limiter.charge_after(bill, used(tokens)));
            node.store.fault(Fault::None);
            ready(node.limiter.settle());
            assert_eq!(peek(&node), [format!("tokens allow {settled}")], "{back} {tokens}");
            assert!(!node.limiter.owes());
        }
    }
}

/// An answer that is lost in the second phase is not asked for again: it may have been charged.
#[test]
fn a_charge_that_was_not_answered_is_not_sent_again() {
    let node = alone(&only_tokens("allow"), &clock());
    let bill = bill(&node);
    node.store.fault(Fault::Mute);
    node.store.asked();
    ready(node.limiter.charge_after(bill, used("250")));
    assert_eq!(node.store.asked(), [(Op::Force, 1)]);
    node.store.fault(Fault::None);
    assert_eq!(peek(&node), ["tokens allow 750"]);
}

/// Under the old policy a full bucket would have drained for 5 seconds at ten a second.
#[test]
fn a_bill_is_settled_under_the_rules_in_force() {
    let clock = clock();
    let bucket = |rate: &str| {
        format!(
            "rules: [{{ id: r, key_by: ip, limit: {rate} burst 100, cost: {{ response_header: x, max: 500 }} }}]"
        )
    };
    let node = alone(&bucket("36000/h"), &clock);
    let open = bill(&node);
    ready(node.limiter.force(&facts(IP), None, 99));
    ready(node.limiter.install(rules(&bucket("1/h")))).unwrap();
    clock.advance(Micros::from_secs(5));
    ready(node.limiter.charge_after(open, used("2")));
    assert_eq!(peek(&node), ["r deny 0"]);
    // A counter that no rule looks at any more is left alone.
    let gone = {
        ready(node.limiter.reset(&facts(IP), None));
        bill(&node)
    };
    ready(node.limiter.install(rules("rules: [{ id: other, key_by: ip, limit: 5/h }]"))).unwrap();
    node.store.asked();
    ready(node.limiter.charge_after(gone, used("50")));
    assert_eq!(node.store.asked(), []);
}

/// Rules change places; what a receipt is about stays.
#[test]
fn receipts_find_their_counters_after_rules_have_moved() {
    let tokens = "{ id: tokens, key_by: ip, limit: 1000/h using fixed_window, \
                  cost: { response_header: x, max: 500, estimate: 10 } }";
    let first = "{ id: first, key_by: ip, limit: 50/h using fixed_window }";
    let node = alone(&format!("rules: [{tokens}]"), &clock());
    let (more, less, all) = (bill(&node), bill(&node), decide(&node));
    ready(node.limiter.install(rules(&format!("rules: [{first}, {tokens}]")))).unwrap();
    let left = || peek(&node)[1].clone();
    assert_eq!(left(), "tokens allow 970");
    ready(node.limiter.charge_after(more, used("110")));
    assert_eq!(left(), "tokens allow 870");
    ready(node.limiter.charge_after(less, used("3")));
    assert_eq!(left(), "tokens allow 877");
    ready(node.limiter.give_back(all));
    assert_eq!(peek(&node), ["first allow 50", "tokens allow 887"]);
}

/// A door decides in one task and settles in another, on any thread.
#[test]
fn what_comes_after_the_response_may_be_done_on_any_thread() {
    fn any_thread<T: Send + 'static>(_: T) {}
    let (limiter, _) = limiter(TOKENS);
    let limiter = Arc::new(limiter);
    let (shared, header) = (Arc::clone(&limiter), b"7".to_vec());
    any_thread(async move {
        let request = |rule: &Rule| rule.cost().of_request(|_| [&header[..]], None);
        let mut decision = shared.decide_under(shared.rules(), &facts(IP), request).await;
        let (bill, slots) = (decision.take_bill(), decision.take_slots());
        if let Some(mut slots) = slots {
            shared.renew(&mut slots).await;
            shared.release(slots).await;
        }
        if let Some(bill) = bill {
            shared.charge_after(bill, |_| Some(2)).await;
        }
    });
}

#[test]
fn costs_and_slots_of_one_request_go_their_own_ways() {
    let (limiter, _) = limiter(
        "rules:
           - { id: slots, key_by: ip, limit: { concurrent: 4 }, cost: { header: x-weight, max: 3 } }
           - { id: tokens, key_by: ip, limit: 100/h using fixed_window, cost: { response_header: x, max: 50 } }
           - { id: plain, key_by: ip, limit: 9/h using fixed_window }",
    );
    let weight = |rule: &Rule| rule.cost().of_request(|_| [&b"3"[..]], None);
    let mut decision = ready(limiter.decide_under(limiter.rules(), &facts(IP), weight));
    let (bill, slots) = (decision.take_bill().unwrap(), decision.take_slots().unwrap());
    assert!(matches!(bill.rules().next().map(Rule::cost), Some(Cost::ResponseHeader { .. })));
    let left = || told(&ready(limiter.peek(&facts(IP), None, 1)));
    assert_eq!(left(), ["slots allow 1", "tokens allow 99", "plain allow 8"]);
    assert!(!ready(limiter.decide_under(limiter.rules(), &facts(IP), weight)).is_allowed());
    assert_eq!(left(), ["slots allow 1", "tokens allow 99", "plain allow 8"], "all or none");
    ready(limiter.release(slots));
    ready(limiter.charge_after(bill, used("20")));
    assert_eq!(left(), ["slots allow 4", "tokens allow 80", "plain allow 8"]);
    ready(limiter.give_back(decision));
    assert_eq!(left(), ["slots allow 4", "tokens allow 80", "plain allow 9"]);
}
