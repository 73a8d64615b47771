//! `on_fail: local`: warm local buckets with a share of the limit decide while the store is gone.

mod common;

use common::flaky::{Fault, Node, alone, fleet};
use common::{clock, facts, ready, rules, told};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];
const OTHER: &[(&str, &str)] = &[("ip", "203.0.113.8")];

const HUNDRED: &str =
    "rules: [{ id: r, key_by: ip, limit: 100/h using fixed_window, on_fail: local }]";

/// How many of `tries` requests pass.
fn passed(node: &Node, tries: usize) -> usize {
    (0..tries).filter(|_| ready(node.limiter.decide(&facts(IP), 1)).is_allowed()).count()
}

fn peek(node: &Node) -> Vec<String> {
    told(&ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn a_node_admits_its_share_while_the_store_is_gone() {
    let nodes = fleet(HUNDRED, 4, &clock());
    nodes.iter().for_each(|node| node.store.fault(Fault::Gone));
    let first = ready(nodes[0].limiter.decide(&facts(IP), 1));
    assert_eq!(first.answered_by(), AnsweredBy::Fallback);
    assert_eq!(told(&first), ["r allow 24"], "a quarter of 100");
    assert_eq!(passed(&nodes[0], 50), 24);
    assert_eq!(nodes[1..].iter().map(|node| passed(node, 50)).sum::<usize>(), 75);
    let refused = ready(nodes[0].limiter.decide(&facts(IP), 1));
    assert_eq!(refused.tightest().unwrap().1.retry(), Retry::After(Micros::from_secs(3_600)));
    assert!(ready(nodes[0].limiter.decide(&facts(OTHER), 1)).is_allowed());
}

#[test]
fn a_client_that_has_just_used_its_limit_does_not_get_a_fresh_share() {
    let nodes = fleet(HUNDRED, 4, &clock());
    assert_eq!(passed(&nodes[0], 20), 20);
    assert_eq!(passed(&nodes[1], 200), 80);
    nodes.iter().for_each(|node| node.store.fault(Fault::Gone));
    assert_eq!(passed(&nodes[0], 50), 5, "20 of its 25 were used by way of this node");
    assert_eq!(passed(&nodes[1], 50), 0, "this node's share is long used up");
}

/// Refused requests charge no store, so they may not fill the local bucket either.
#[test]
fn only_what_the_store_charged_warms_a_local_bucket() {
    let node = alone(
        "rules:
           - { id: r, key_by: ip, limit: 10/h using fixed_window, on_fail: local }
           - { id: all, key_by: global, limit: 3/h using fixed_window }",
        &clock(),
    );
    assert_eq!(passed(&node, 50), 3);
    node.store.fault(Fault::Gone);
    assert_eq!(peek(&node), ["r allow 7", "all allow 3"]);
}

#[test]
fn what_a_store_answered_only_in_part_charged_warms_as_well() {
    let node = alone(
        "on_fail: local
rules:
  - { id: answered, key_by: ip, limit: 10/h using fixed_window }
  - { id: lost, key_by: ip, limit: 10/h using fixed_window }",
        &clock(),
    );
    node.store.fault(Fault::Without(&["lost"]));
    assert_eq!(passed(&node, 4), 4);
    node.store.fault(Fault::Gone);
    assert_eq!(peek(&node), ["answered allow 6", "lost allow 6"]);
}

#[test]
fn refunds_and_resets_reach_the_local_bucket_also_of_a_log() {
    for algorithm in ["token_bucket", "sliding_window_log", "sliding_window_counter"] {
        let clock = clock();
        let node = alone(
            &format!(
                "rules: [{{ id: r, key_by: ip, limit: 10/h using {algorithm}, on_fail: local }}]"
            ),
            &clock,
        );
        ready(node.limiter.decide(&facts(IP), 2));
        clock.advance(Micros::new(1));
        let receipt = ready(node.limiter.decide(&facts(IP), 3));
        let at = receipt.now();
        ready(node.limiter.give_back(receipt));
        node.store.fault(Fault::Gone);
        assert_eq!(peek(&node), ["r allow 8"], "{algorithm}: the receipt came back here as well");
        node.store.fault(Fault::None);
        ready(node.limiter.force(&facts(IP), None, 4));
        ready(node.limiter.refund(&facts(IP), None, 3, at));
        node.store.fault(Fault::Gone);
        assert_eq!(peek(&node), ["r allow 7"], "{algorithm}: forced 4, refunded 3");
        node.store.fault(Fault::None);
        ready(node.limiter.reset(&facts(IP), None));
        node.store.fault(Fault::Gone);
        assert_eq!(peek(&node), ["r allow 10"], "{algorithm}");
    }
}

#[test]
fn force_refund_and_reset_work_on_the_share_while_the_store_is_gone() {
    let clock = clock();
    let node = alone(HUNDRED, &clock);
    node.store.fault(Fault::Gone);
    let forced = ready(node.limiter.force(&facts(IP), None, 120));
    assert_eq!(forced.answered_by(), AnsweredBy::Fallback);
    assert_eq!(peek(&node), ["r deny 0"]);
    ready(node.limiter.refund(&facts(IP), None, 50, None));
    assert_eq!(peek(&node), ["r allow 30"]);
    ready(node.limiter.reset(&facts(IP), None));
    assert_eq!(peek(&node), ["r allow 100"]);
    assert!(!node.limiter.owes(), "what is forgotten is not owed");
    let explained = ready(node.limiter.explain(&facts(IP), 1));
    assert!(explained.why.contains("r has the least left"), "{}", explained.why);
}

#[test]
fn a_receipt_of_a_share_is_given_back_to_it_and_not_to_the_store() {
    let node = alone(HUNDRED, &clock());
    ready(node.limiter.decide(&facts(IP), 10));
    node.store.fault(Fault::Gone);
    let receipt = ready(node.limiter.decide(&facts(IP), 7));
    let kept = ready(node.limiter.decide(&facts(IP), 2));
    assert!(kept.is_allowed());
    node.store.fault(Fault::None);
    node.store.asked();
    ready(node.limiter.give_back(receipt));
    assert_eq!(node.store.asked(), [], "the store had not charged it");
    assert_eq!(peek(&node), ["r allow 88"], "the node knows what the store does not know yet");
    ready(node.limiter.settle());
    assert_eq!(peek(&node), ["r allow 88"], "what was kept is owed, what was given back is not");
}

#[test]
fn warnings_and_bans_go_on_while_the_store_is_gone() {
    let node = alone(
        "on_fail: local
rules:
  - { id: warned, match: { path: /w }, mode: warn, warn: { allow: 1, period: 1m }, key_by: ip, limit: 1/h }
  - { id: banned, match: { path: /b }, key_by: ip, limit: 1/h, ban: { after: 2, within: 1m, for: 10s } }",
        &clock(),
    );
    node.store.fault(Fault::Gone);
    let verdicts = |path: &'static [(&'static str, &'static str)]| -> Vec<String> {
        let decide = || told(&ready(node.limiter.decide(&facts(path), 1))).remove(0);
        (0..4).map(|_| decide()).collect()
    };
    assert_eq!(
        verdicts(&[("ip", "203.0.113.7"), ("path", "/w")]),
        ["warned allow 0", "warned warn 0", "warned deny 0", "warned deny 0"]
    );
    assert_eq!(
        verdicts(&[("ip", "203.0.113.7"), ("path", "/b")]),
        ["banned allow 0", "banned deny 0", "banned deny 0", "banned ban 0"]
    );
}

#[test]
fn a_queue_has_a_share_of_its_rate_and_its_places() {
    let nodes = fleet(
        "rules: [{ id: q, key_by: ip, on_fail: local, limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]",
        2,
        &clock(),
    );
    nodes[0].store.fault(Fault::Gone);
    let delays: Vec<_> = (0..4)
        .map(|_| {
            let decision = ready(nodes[0].limiter.decide(&facts(IP), 1));
            (decision.is_allowed(), decision.delay().get())
        })
        .collect();
    assert_eq!(delays, [(true, 0), (true, 200_000), (true, 400_000), (false, 0)]);
}

#[test]
fn a_cost_that_only_the_whole_limit_holds_is_asked_to_come_back() {
    let nodes = fleet(HUNDRED, 4, &clock());
    nodes[0].store.fault(Fault::Gone);
    let retry = |cost| {
        let decision = ready(nodes[0].limiter.decide(&facts(IP), cost));
        decision.tightest().unwrap().1.retry()
    };
    assert_eq!(retry(26), Retry::After(Micros::from_secs(1)));
    assert_eq!(retry(101), Retry::Never);
}

#[test]
fn the_share_follows_the_number_of_nodes_and_keeps_what_was_used() {
    let clock = clock();
    let node = alone("rules: [{ id: r, key_by: ip, limit: 100/h, on_fail: local }]", &clock);
    ready(node.limiter.decide(&facts(IP), 10));
    let share_with = |nodes: u32| {
        node.store.set_nodes(nodes);
        node.store.fault(Fault::None);
        ready(node.limiter.peek(&facts(IP), None, 1));
        node.store.fault(Fault::Gone);
        peek(&node)
    };
    assert_eq!(share_with(4), ["r allow 15"]);
    assert_eq!(share_with(1), ["r allow 90"]);
    assert_eq!(share_with(4), ["r allow 15"]);
    // An hour drains the whole share, whatever it is.
    assert_eq!(passed(&node, 5), 5);
    clock.advance(Micros::from_secs(3_600 / 5));
    assert_eq!(peek(&node), ["r allow 15"], "5 drain in a fifth of an hour, not 20");
}

/// The share is of the nodes that there are, not of those that there were when a rule was last asked.
#[test]
fn the_share_of_a_rule_that_is_not_asked_follows_the_number_of_nodes_too() {
    for reload in [false, true] {
        let node = alone(HUNDRED, &clock());
        node.store.set_nodes(4);
        if reload {
            ready(node.limiter.install(rules(HUNDRED))).unwrap();
        }
        node.store.fault(Fault::Gone);
        assert_eq!(passed(&node, 150), 25, "a quarter; reload: {reload}");
        let node = fleet(HUNDRED, 4, &clock()).remove(0);
        node.store.set_nodes(1);
        node.store.fault(Fault::Gone);
        assert_eq!(passed(&node, 150), 100, "the others have left");
    }
}

#[test]
fn rules_can_be_changed_while_the_store_is_gone_and_what_was_used_stays_used() {
    let node = alone(HUNDRED, &clock());
    ready(node.limiter.decide(&facts(IP), 10));
    node.store.fault(Fault::Gone);
    assert_eq!(passed(&node, 20), 20);
    ready(node.limiter.install(rules(
        "rules:
           - { id: new, key_by: ip, limit: 5/h, on_fail: local }
           - { id: r, key_by: ip, limit: 50/h using fixed_window, on_fail: local }",
    )))
    .unwrap();
    assert_eq!(peek(&node), ["new allow 5", "r allow 20"]);
    assert_eq!(passed(&node, 10), 5);
    node.store.fault(Fault::None);
    ready(node.limiter.settle());
    assert_eq!(peek(&node), ["new deny 0", "r allow 15"], "10 + 20 + 5 of 50");
}

#[test]
fn rules_without_local_cost_no_call_more_and_rules_with_it_none_to_the_store() {
    let source = |on_fail: &str| {
        format!(
            "rules: [{{ id: r, key_by: ip, limit: 100/h using fixed_window, on_fail: {on_fail} }}]"
        )
    };
    for on_fail in ["allow", "deny"] {
        let node = alone(&source(on_fail), &clock());
        passed(&node, 3);
        assert_eq!(node.store.asked(), [(Op::Charge, 1); 3]);
        assert_eq!(node.limiter.local().unwrap().usage().keys, 0, "nothing is kept warm");
    }
    let node = alone(&source("local"), &clock());
    passed(&node, 3);
    assert_eq!(node.store.asked(), [(Op::Charge, 1); 3]);
    assert_eq!(node.limiter.local().unwrap().usage().keys, 1);
    assert!(!node.limiter.owes());
}
