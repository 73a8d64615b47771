//! What was admitted while the store was gone is written to it when it is back: once, and only what
//! is still in use.

mod common;

use common::flaky::{Fault, Node, alone, fleet};
use common::{clock, facts, ready, rules, told};
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_rules::Facts;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

fn limit(limit: &str) -> String {
    format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_fail: local }}]")
}

fn charge(node: &Node, cost: u32) -> bool {
    ready(node.limiter.decide(&facts(IP), cost)).is_allowed()
}

fn peek(node: &Node) -> String {
    told(&ready(node.limiter.peek(&facts(IP), None, 1))).remove(0)
}

fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("203.0.113.{i}")).collect()
}

fn of(ip: &str) -> Facts<'static> {
    [("ip", ip.to_owned())].into_iter().collect()
}

const ALGORITHMS: [&str; 5] = [
    "100/h using token_bucket",
    "100/h using leaky_bucket",
    "100/h using fixed_window",
    "100/h using sliding_window_log",
    "100/h using sliding_window_counter",
];

#[test]
fn the_store_learns_what_each_node_admitted_once() {
    for algorithm in ALGORITHMS {
        let nodes = fleet(&limit(algorithm), 4, &clock());
        assert!(charge(&nodes[0], 5));
        nodes.iter().for_each(|node| node.store.fault(Fault::Gone));
        for (cost, node) in [7, 8, 9].into_iter().zip(&nodes) {
            assert!(charge(node, cost));
            assert!(node.limiter.owes());
        }
        assert!(!charge(&nodes[0], 14), "5 + 7 of 25 are used");
        nodes.iter().for_each(|node| node.store.fault(Fault::None));
        assert_eq!(peek(&nodes[3]), "r allow 95", "{algorithm}");
        for _ in 0..2 {
            let settled: Vec<_> = nodes.iter().map(|node| ready(node.limiter.settle())).collect();
            assert!(settled.iter().all(|keys| *keys <= 1));
            assert_eq!(peek(&nodes[3]), "r allow 71", "{algorithm}: 5 + 7 + 8 + 9");
        }
        assert!(nodes.iter().all(|node| !node.limiter.owes() && node.limiter.forgotten() == 0));
    }
}

#[test]
fn nothing_is_sent_while_the_store_is_gone() {
    let node = alone(&limit("10/h"), &clock());
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 4));
    node.store.asked();
    assert_eq!(ready(node.limiter.settle()), 0);
    assert_eq!(node.store.asked(), [(Op::Peek, 1)], "only looked whether it is there");
    assert!(node.limiter.owes());
    node.store.fault(Fault::None);
    assert_eq!(ready(node.limiter.settle()), 1);
    assert_eq!(peek(&node), "r allow 6");
}

/// rate-limit-redis #251: a command that was replayed after a timeout debited twice.
#[test]
fn a_write_whose_answer_is_lost_is_not_sent_again() {
    let node = alone(&limit("10/h"), &clock());
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 4));
    node.store.fault(Fault::Mute);
    ready(node.limiter.settle());
    node.store.fault(Fault::None);
    for _ in 0..3 {
        ready(node.limiter.settle());
    }
    assert_eq!(peek(&node), "r allow 6", "it was done, and once");
    assert_eq!((node.limiter.owes(), node.limiter.forgotten()), (false, 4));
}

#[test]
fn what_a_lost_part_of_the_store_is_owed_waits_for_it_and_holds_up_no_other() {
    let node = alone(
        "on_fail: local
rules:
  - { id: a, key_by: ip, limit: 10/h }
  - { id: b, key_by: ip, limit: 10/h }",
        &clock(),
    );
    node.store.fault(Fault::Gone);
    let addresses = addresses(150);
    for ip in &addresses {
        assert!(ready(node.limiter.decide(&of(ip), 4)).is_allowed());
    }
    node.store.fault(Fault::Without(&["a"]));
    let settled: usize = (0..5).map(|_| ready(node.limiter.settle())).sum();
    assert_eq!(settled, 150, "five times 64 are all 300 keys, those of `a` in vain");
    assert!(node.limiter.owes());
    node.store.fault(Fault::None);
    let all = |expected: [&str; 2]| {
        for ip in &addresses {
            assert_eq!(told(&ready(node.limiter.peek(&of(ip), None, 1))), expected);
        }
    };
    all(["a allow 10", "b allow 6"]);
    (0..3).for_each(|_| _ = ready(node.limiter.settle()));
    all(["a allow 6", "b allow 6"]);
    assert_eq!((node.limiter.owes(), node.limiter.forgotten()), (false, 0));
}

#[test]
fn what_has_drained_or_expired_is_not_charged_anew() {
    for algorithm in ALGORITHMS {
        let clock = clock();
        let node = alone(&limit(algorithm), &clock);
        node.store.fault(Fault::Gone);
        for _ in 0..30 {
            assert!(charge(&node, 40), "{algorithm}");
            clock.advance(Micros::from_secs(2 * 3_600));
        }
        node.store.fault(Fault::None);
        ready(node.limiter.settle());
        assert_eq!(peek(&node), "r allow 100", "{algorithm}");
        assert!(!node.limiter.owes());
    }
}

#[test]
fn of_what_has_drained_in_part_the_rest_is_charged() {
    let clock = clock();
    let node = alone(&limit("60/m"), &clock);
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 50));
    clock.advance(Micros::from_secs(20));
    node.store.fault(Fault::None);
    ready(node.limiter.settle());
    assert_eq!(peek(&node), "r allow 30");
}

/// The local bucket of a busy key is never empty: that alone must not make old debts look alive.
#[test]
fn what_the_store_charged_since_is_not_mistaken_for_what_is_owed() {
    for algorithm in &ALGORITHMS[2..] {
        let clock = clock();
        let node = alone(&limit(algorithm), &clock);
        node.store.fault(Fault::Gone);
        assert!(charge(&node, 40));
        node.store.fault(Fault::None);
        for _ in 0..4 {
            clock.advance(Micros::from_secs(3_600));
            assert!(charge(&node, 40), "{algorithm}");
        }
        let before = peek(&node);
        ready(node.limiter.settle());
        assert_eq!(peek(&node), before, "{algorithm}");
    }
}

#[test]
fn what_was_refunded_or_reset_is_not_owed() {
    let node = alone(&limit("100/h using fixed_window"), &clock());
    assert!(charge(&node, 10));
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 7));
    ready(node.limiter.refund(&facts(IP), None, 5, None));
    node.store.fault(Fault::None);
    ready(node.limiter.settle());
    assert_eq!(peek(&node), "r allow 88", "10, and 2 of 7");
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 7));
    node.store.fault(Fault::None);
    ready(node.limiter.reset(&facts(IP), None));
    assert!(!node.limiter.owes());
    assert_eq!(peek(&node), "r allow 100");
}

#[test]
fn many_keys_are_settled_a_portion_at_a_time() {
    let node = alone(&limit("10/h"), &clock());
    node.store.fault(Fault::Gone);
    let addresses = addresses(150);
    for ip in &addresses {
        assert!(ready(node.limiter.decide(&of(ip), 3)).is_allowed());
    }
    node.store.fault(Fault::None);
    let portions: Vec<usize> = (0..4).map(|_| ready(node.limiter.settle())).collect();
    assert_eq!(portions, [64, 64, 22, 0]);
    for ip in &addresses {
        assert_eq!(told(&ready(node.limiter.peek(&of(ip), None, 1))), ["r allow 7"]);
    }
}

#[test]
fn the_debt_of_a_rule_that_is_gone_or_counts_otherwise_is_dropped() {
    for after in ["rules: []", "rules: [{ id: r, key_by: ip, limit: 10/d, on_fail: local }]"] {
        let node = alone(&limit("10/h"), &clock());
        node.store.fault(Fault::Gone);
        assert!(charge(&node, 4));
        ready(node.limiter.install(rules(after))).unwrap();
        node.store.fault(Fault::None);
        assert_eq!(ready(node.limiter.settle()), 0);
        assert!(!node.limiter.owes());
    }
}
