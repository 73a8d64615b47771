//! What was admitted while the store was gone is written to it when it is back: once, and only what
//! is still in use.

mod common;

use common::flaky::{Fault, Node, alone, fleet};
use common::{clock, facts, ready, rules, told};
use proptest::prelude::*;
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_rules::Facts;
use tidegate_testkit::property::{cases, holds};

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

/// A breaker that closes lets the look through and then refuses the write.
#[test]
fn a_write_that_was_certainly_not_done_stays_owed() {
    let nodes = fleet(&limit("10/h"), 2, &clock());
    let node = &nodes[0];
    node.store.fault(Fault::Gone);
    assert!(charge(node, 4));
    node.store.fault(Fault::Closing(2));
    for _ in 0..3 {
        assert_eq!(ready(node.limiter.settle()), 0);
        assert!(node.limiter.owes());
    }
    assert_eq!(node.store.asked().last(), Some(&(Op::Force, 1)), "it was tried");
    node.store.fault(Fault::None);
    assert_eq!(ready(node.limiter.settle()), 1);
    assert_eq!(peek(&nodes[1]), "r allow 6");
    assert_eq!((node.limiter.owes(), node.limiter.forgotten()), (false, 0));
}

#[test]
fn a_node_that_is_alone_decides_by_itself_until_the_store_knows_what_it_owes() {
    for algorithm in ALGORITHMS {
        let node = alone(&limit(algorithm), &clock());
        node.store.fault(Fault::Gone);
        assert!(charge(&node, 70));
        node.store.fault(Fault::None);
        node.store.asked();
        assert!(!charge(&node, 40), "{algorithm}: the store would admit it");
        assert_eq!(peek(&node), "r allow 30", "{algorithm}");
        assert_eq!(node.store.asked(), [], "{algorithm}");
        assert_eq!(ready(node.limiter.settle()), 1);
        assert!(!charge(&node, 40), "{algorithm}");
        assert!(charge(&node, 30), "{algorithm}");
        assert_eq!(node.store.asked().last(), Some(&(Op::Charge, 1)), "{algorithm}");
    }
}

#[test]
fn what_is_not_owed_is_asked_for_beside_what_is() {
    let node = alone(
        "rules:
           - { id: r, key_by: ip, limit: 10/h, on_fail: local }
           - { id: all, key_by: global, limit: 20/h }",
        &clock(),
    );
    node.store.fault(Fault::Gone);
    assert!(charge(&node, 4));
    node.store.fault(Fault::None);
    let both = || told(&ready(node.limiter.decide(&facts(IP), 3)));
    assert_eq!(both(), ["r allow 3", "all allow 17"]);
    assert_eq!(both(), ["r allow 0", "all allow 14"]);
    assert_eq!(both(), ["r deny 0", "all allow 14"], "refused by one, charged to none");
    assert_eq!(ready(node.limiter.settle()), 1);
    assert_eq!(told(&ready(node.limiter.peek(&facts(IP), None, 1))), ["r deny 0", "all allow 14"]);
}

/// No other node charges the store, so that it can be brought to what the node knows.
#[test]
fn a_node_that_is_alone_brings_the_store_to_what_it_knows() {
    for algorithm in ALGORITHMS {
        let node = alone(&limit(algorithm), &clock());
        node.store.fault(Fault::Mute);
        assert!(charge(&node, 30), "the store counts it, and its answer is lost");
        node.store.fault(Fault::None);
        ready(node.limiter.settle());
        let left = peek(&node);
        assert!(["r allow 70", "r allow 69"].contains(&left.as_str()), "{algorithm}: {left}");
    }
    for algorithm in &ALGORITHMS[..3] {
        let node = alone(&limit(algorithm), &clock());
        assert!(charge(&node, 30));
        node.store.lose_data();
        node.store.fault(Fault::Gone);
        assert!(charge(&node, 20));
        node.store.fault(Fault::None);
        ready(node.limiter.settle());
        let left = peek(&node);
        assert!(["r allow 50", "r allow 49"].contains(&left.as_str()), "{algorithm}: {left}");
    }
}

/// What befalls a fleet whose clock stands still.
#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u32),
    Settle(usize),
    Fault(usize, Fault),
}

fn steps(faults: &[Fault]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let fault = (0..3_usize, prop::sample::select(faults.to_vec()));
    let step = prop_oneof![
        4 => (0..3_usize, 1..4_u32).prop_map(|(node, cost)| Step::Ask(node, cost)),
        2 => (0..3_usize).prop_map(Step::Settle),
        2 => fault.prop_map(|(node, fault)| Step::Fault(node, fault)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Takes the steps, has the store well in the end, and settles. Returns what was admitted, what the
/// store knows of, and what was given up as perhaps known.
fn end_of(nodes: &[Node], steps: &[Step]) -> (u64, u64, u64) {
    let mut admitted = 0;
    for step in steps {
        match step {
            Step::Ask(node, cost) => {
                let passes = charge(&nodes[node % nodes.len()], *cost);
                admitted += if passes { u64::from(*cost) } else { 0 };
            }
            Step::Settle(node) => _ = ready(nodes[node % nodes.len()].limiter.settle()),
            Step::Fault(node, fault) => nodes[node % nodes.len()].store.fault(fault.clone()),
        }
    }
    for node in nodes {
        node.store.fault(Fault::None);
        while node.limiter.owes() {
            assert!(ready(node.limiter.settle()) > 0, "a store that is well is paid");
        }
    }
    let left = ready(nodes[0].limiter.peek(&facts(IP), None, 1));
    let numbers = left.tightest().and_then(|(_, reading)| reading.numbers).unwrap_or_default();
    let forgotten = nodes.iter().map(|node| node.limiter.forgotten()).sum();
    (admitted, numbers.limit - numbers.remaining, forgotten)
}

#[test]
fn no_debt_is_lost_to_a_store_that_refuses_or_is_gone() {
    let faults = [Fault::None, Fault::Gone, Fault::Closing(2), Fault::Closing(3)];
    let fleets = (1..4_u32, 0..ALGORITHMS.len(), steps(&faults));
    holds("settle-nothing-lost", cases() / 10, &fleets, |(nodes, algorithm, steps)| {
        let source = limit(&ALGORITHMS[algorithm].replace("100", "1000"));
        let (admitted, known, forgotten) = end_of(&fleet(&source, nodes, &clock()), &steps);
        prop_assert_eq!((known, forgotten), (admitted, 0));
        Ok(())
    });
}

#[test]
fn a_debt_is_given_up_only_when_its_write_may_have_run() {
    let faults = [Fault::None, Fault::Gone, Fault::Closing(2), Fault::Mute, Fault::Lost];
    let fleets = (1..4_u32, 0..ALGORITHMS.len(), steps(&faults));
    holds("settle-may-have-run", cases() / 10, &fleets, |(nodes, algorithm, steps)| {
        let source = limit(&ALGORITHMS[algorithm].replace("100", "1000"));
        let (admitted, known, forgotten) = end_of(&fleet(&source, nodes, &clock()), &steps);
        prop_assert!(known + forgotten >= admitted, "{known} + {forgotten} < {admitted}");
        Ok(())
    });
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
    all(["a allow 6", "b allow 6"]);
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
        assert_eq!(ready(node.limiter.settle()), 1, "it owes nothing any more");
        assert!(!node.limiter.owes());
    }
}
