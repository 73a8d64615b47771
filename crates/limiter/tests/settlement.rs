//! Settlement: usage admitted during an outage is written to the store after it, once, and only as
//! far as it has not drained.

mod common;

use common::{clock, facts, poll_ready, reading_summary};
use proptest::prelude::*;
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, fleet, single_node};
use tidegate_fixtures::server::compile_rules;
use tidegate_rules::Facts;
use tidegate_testkit::property::{cases, check_property};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

fn rules_with_limit(limit: &str) -> String {
    format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_fail: local }}]")
}

fn charge(node: &TestNode, cost: u32) -> bool {
    poll_ready(node.limiter.decide(&facts(IP), cost)).is_allowed()
}

fn peek(node: &TestNode) -> String {
    reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1))).remove(0)
}

fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("203.0.113.{i}")).collect()
}

fn facts_for_ip(ip: &str) -> Facts<'static> {
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
fn settlement_writes_each_admission_once() {
    for algorithm in ALGORITHMS {
        let nodes = fleet(&rules_with_limit(algorithm), 4, &clock());
        assert!(charge(&nodes[0], 5));
        nodes.iter().for_each(|node| node.store.set_fault(StoreFault::Unreachable));
        for (cost, node) in [7, 8, 9].into_iter().zip(&nodes) {
            assert!(charge(node, cost));
            assert!(node.limiter.has_unsettled());
        }
        assert!(!charge(&nodes[0], 14), "5 + 7 of 25 are used");
        nodes.iter().for_each(|node| node.store.set_fault(StoreFault::None));
        assert_eq!(peek(&nodes[3]), "r allow 95", "{algorithm}");
        for _ in 0..2 {
            let settled: Vec<_> =
                nodes.iter().map(|node| poll_ready(node.limiter.settle())).collect();
            assert!(settled.iter().all(|keys| *keys <= 1));
            assert_eq!(peek(&nodes[3]), "r allow 71", "{algorithm}: 5 + 7 + 8 + 9");
        }
        assert!(
            nodes
                .iter()
                .all(|node| !node.limiter.has_unsettled() && node.limiter.lost_usage() == 0)
        );
    }
}

#[test]
fn settlement_sends_nothing_during_outage() {
    let node = single_node(&rules_with_limit("10/h"), &clock());
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 4));
    node.store.take_recorded_calls();
    assert_eq!(poll_ready(node.limiter.settle()), 0);
    assert_eq!(
        node.store.take_recorded_calls(),
        [(Op::Peek, 1)],
        "only a peek to check that the store is reachable"
    );
    assert!(node.limiter.has_unsettled());
    node.store.set_fault(StoreFault::None);
    assert_eq!(poll_ready(node.limiter.settle()), 1);
    assert_eq!(peek(&node), "r allow 6");
}

/// rate-limit-redis #251: a command replayed after a timeout was charged twice.
#[test]
fn unanswered_settlement_write_is_not_resent() {
    let node = single_node(&rules_with_limit("10/h"), &clock());
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 4));
    node.store.set_fault(StoreFault::AnswerLost);
    poll_ready(node.limiter.settle());
    node.store.set_fault(StoreFault::None);
    for _ in 0..3 {
        poll_ready(node.limiter.settle());
    }
    assert_eq!(peek(&node), "r allow 6", "executed exactly once");
    assert_eq!((node.limiter.has_unsettled(), node.limiter.lost_usage()), (false, 4));
}

/// A closing breaker lets the peek through and then rejects the write.
#[test]
fn failed_settlement_write_stays_unsettled() {
    let nodes = fleet(&rules_with_limit("10/h"), 2, &clock());
    let node = &nodes[0];
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(node, 4));
    node.store.set_fault(StoreFault::BreakerClosing(2));
    for _ in 0..3 {
        assert_eq!(poll_ready(node.limiter.settle()), 0);
        assert!(node.limiter.has_unsettled());
    }
    assert_eq!(
        node.store.take_recorded_calls().last(),
        Some(&(Op::Force, 1)),
        "the write was attempted"
    );
    node.store.set_fault(StoreFault::None);
    assert_eq!(poll_ready(node.limiter.settle()), 1);
    assert_eq!(peek(&nodes[1]), "r allow 6");
    assert_eq!((node.limiter.has_unsettled(), node.limiter.lost_usage()), (false, 0));
}

#[test]
fn single_node_decides_locally_until_settled() {
    for algorithm in ALGORITHMS {
        let node = single_node(&rules_with_limit(algorithm), &clock());
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 70));
        node.store.set_fault(StoreFault::None);
        node.store.take_recorded_calls();
        assert!(!charge(&node, 40), "{algorithm}: the store would admit it");
        assert_eq!(peek(&node), "r allow 30", "{algorithm}");
        assert_eq!(node.store.take_recorded_calls(), [], "{algorithm}");
        assert_eq!(poll_ready(node.limiter.settle()), 1);
        assert!(!charge(&node, 40), "{algorithm}");
        assert!(charge(&node, 30), "{algorithm}");
        assert_eq!(node.store.take_recorded_calls().last(), Some(&(Op::Charge, 1)), "{algorithm}");
    }
}

#[test]
fn settled_keys_use_the_store() {
    let node = single_node(
        "rules:
           - { id: r, key_by: ip, limit: 10/h, on_fail: local }
           - { id: all, key_by: global, limit: 20/h }",
        &clock(),
    );
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 4));
    node.store.set_fault(StoreFault::None);
    let both = || reading_summary(&poll_ready(node.limiter.decide(&facts(IP), 3)));
    assert_eq!(both(), ["r allow 3", "all allow 17"]);
    assert_eq!(both(), ["r allow 0", "all allow 14"]);
    assert_eq!(both(), ["r deny 0", "all allow 14"], "refused by one, charged to none");
    assert_eq!(poll_ready(node.limiter.settle()), 1);
    assert_eq!(
        reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1))),
        ["r deny 0", "all allow 14"]
    );
}

/// No other node charges the store, so settlement can raise its counter to the local one.
#[test]
fn single_node_settlement_restores_store_usage() {
    for algorithm in ALGORITHMS {
        let node = single_node(&rules_with_limit(algorithm), &clock());
        node.store.set_fault(StoreFault::AnswerLost);
        assert!(charge(&node, 30), "the store counts it, and its answer is lost");
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        let left = peek(&node);
        assert!(["r allow 70", "r allow 69"].contains(&left.as_str()), "{algorithm}: {left}");
    }
    for algorithm in &ALGORITHMS[..3] {
        let node = single_node(&rules_with_limit(algorithm), &clock());
        assert!(charge(&node, 30));
        node.store.lose_data();
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 20));
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        let left = peek(&node);
        assert!(["r allow 50", "r allow 49"].contains(&left.as_str()), "{algorithm}: {left}");
    }
}

/// A step of a test on a fleet whose clock stands still.
#[derive(Clone, Debug)]
enum SettleStep {
    Decide(usize, u32),
    Settle(usize),
    SetFault(usize, StoreFault),
}

fn steps(faults: &[StoreFault]) -> impl Strategy<Value = Vec<SettleStep>> + use<> {
    let fault = (0..3_usize, prop::sample::select(faults.to_vec()));
    let step = prop_oneof![
        4 => (0..3_usize, 1..4_u32).prop_map(|(node, cost)| SettleStep::Decide(node, cost)),
        2 => (0..3_usize).prop_map(SettleStep::Settle),
        2 => fault.prop_map(|(node, fault)| SettleStep::SetFault(node, fault)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs the steps, makes the store reachable and settles. Returns the usage that was admitted, the
/// usage that the store has counted, and the usage reported as lost.
fn run_and_settle(nodes: &[TestNode], steps: &[SettleStep]) -> (u64, u64, u64) {
    let mut admitted = 0;
    for step in steps {
        match step {
            SettleStep::Decide(node, cost) => {
                let passes = charge(&nodes[node % nodes.len()], *cost);
                admitted += if passes { u64::from(*cost) } else { 0 };
            }
            SettleStep::Settle(node) => _ = poll_ready(nodes[node % nodes.len()].limiter.settle()),
            SettleStep::SetFault(node, fault) => {
                nodes[node % nodes.len()].store.set_fault(fault.clone());
            }
        }
    }
    for node in nodes {
        node.store.set_fault(StoreFault::None);
        while node.limiter.has_unsettled() {
            assert!(
                poll_ready(node.limiter.settle()) > 0,
                "a reachable store must accept settlements"
            );
        }
    }
    let left = poll_ready(nodes[0].limiter.peek(&facts(IP), None, 1));
    let numbers = left.tightest().and_then(|(_, reading)| reading.numbers).unwrap_or_default();
    let lost = nodes.iter().map(|node| node.limiter.lost_usage()).sum();
    (admitted, numbers.limit - numbers.remaining, lost)
}

#[test]
fn unreachable_store_loses_no_unsettled_usage() {
    let faults = [
        StoreFault::None,
        StoreFault::Unreachable,
        StoreFault::BreakerClosing(2),
        StoreFault::BreakerClosing(3),
    ];
    let fleets = (1..4_u32, 0..ALGORITHMS.len(), steps(&faults));
    check_property("settle-nothing-lost", cases() / 10, &fleets, |(nodes, algorithm, steps)| {
        let source = rules_with_limit(&ALGORITHMS[algorithm].replace("100", "1000"));
        let (admitted, counted, lost) = run_and_settle(&fleet(&source, nodes, &clock()), &steps);
        prop_assert_eq!((counted, lost), (admitted, 0));
        Ok(())
    });
}

#[test]
fn only_ambiguous_writes_drop_unsettled_usage() {
    let faults = [
        StoreFault::None,
        StoreFault::Unreachable,
        StoreFault::BreakerClosing(2),
        StoreFault::AnswerLost,
        StoreFault::RequestLost,
    ];
    let fleets = (1..4_u32, 0..ALGORITHMS.len(), steps(&faults));
    check_property("settle-may-have-run", cases() / 10, &fleets, |(nodes, algorithm, steps)| {
        let source = rules_with_limit(&ALGORITHMS[algorithm].replace("100", "1000"));
        let (admitted, counted, lost) = run_and_settle(&fleet(&source, nodes, &clock()), &steps);
        prop_assert!(counted + lost >= admitted, "{counted} + {lost} < {admitted}");
        Ok(())
    });
}

#[test]
fn partial_outage_delays_only_its_settlements() {
    let node = single_node(
        "on_fail: local
rules:
  - { id: a, key_by: ip, limit: 10/h }
  - { id: b, key_by: ip, limit: 10/h }",
        &clock(),
    );
    node.store.set_fault(StoreFault::Unreachable);
    let addresses = addresses(150);
    for ip in &addresses {
        assert!(poll_ready(node.limiter.decide(&facts_for_ip(ip), 4)).is_allowed());
    }
    node.store.set_fault(StoreFault::PartUnreachable(&["a"]));
    let settled: usize = (0..5).map(|_| poll_ready(node.limiter.settle())).sum();
    assert_eq!(settled, 150, "5 × 64 covers all 300 keys; those of `a` fail");
    assert!(node.limiter.has_unsettled());
    node.store.set_fault(StoreFault::None);
    let all = |expected: [&str; 2]| {
        for ip in &addresses {
            assert_eq!(
                reading_summary(&poll_ready(node.limiter.peek(&facts_for_ip(ip), None, 1))),
                expected
            );
        }
    };
    all(["a allow 6", "b allow 6"]);
    (0..3).for_each(|_| _ = poll_ready(node.limiter.settle()));
    all(["a allow 6", "b allow 6"]);
    assert_eq!((node.limiter.has_unsettled(), node.limiter.lost_usage()), (false, 0));
}

#[test]
fn drained_usage_is_not_settled() {
    for algorithm in ALGORITHMS {
        let clock = clock();
        let node = single_node(&rules_with_limit(algorithm), &clock);
        node.store.set_fault(StoreFault::Unreachable);
        for _ in 0..30 {
            assert!(charge(&node, 40), "{algorithm}");
            clock.advance(Micros::from_secs(2 * 3_600));
        }
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), "r allow 100", "{algorithm}");
        assert!(!node.limiter.has_unsettled());
    }
}

#[test]
fn partly_drained_usage_settles_remainder() {
    let clock = clock();
    let node = single_node(&rules_with_limit("60/m"), &clock);
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 50));
    clock.advance(Micros::from_secs(20));
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.settle());
    assert_eq!(peek(&node), "r allow 30");
}

/// The local bucket of a busy key is never empty. That alone must not keep old unsettled usage
/// alive.
#[test]
fn later_store_charges_are_not_settled() {
    for algorithm in &ALGORITHMS[2..] {
        let clock = clock();
        let node = single_node(&rules_with_limit(algorithm), &clock);
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 40));
        node.store.set_fault(StoreFault::None);
        for _ in 0..4 {
            clock.advance(Micros::from_secs(3_600));
            assert!(charge(&node, 40), "{algorithm}");
        }
        let before = peek(&node);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), before, "{algorithm}");
    }
}

#[test]
fn refunded_usage_is_not_settled() {
    let node = single_node(&rules_with_limit("100/h using fixed_window"), &clock());
    assert!(charge(&node, 10));
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 7));
    poll_ready(node.limiter.refund(&facts(IP), None, 5, None));
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.settle());
    assert_eq!(peek(&node), "r allow 88", "10, plus 7 minus the refund of 5");
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 7));
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.reset(&facts(IP), None));
    assert!(!node.limiter.has_unsettled());
    assert_eq!(peek(&node), "r allow 100");
}

#[test]
fn settlement_runs_in_bounded_batches() {
    let node = single_node(&rules_with_limit("10/h"), &clock());
    node.store.set_fault(StoreFault::Unreachable);
    let addresses = addresses(150);
    for ip in &addresses {
        assert!(poll_ready(node.limiter.decide(&facts_for_ip(ip), 3)).is_allowed());
    }
    node.store.set_fault(StoreFault::None);
    let batches: Vec<usize> = (0..4).map(|_| poll_ready(node.limiter.settle())).collect();
    assert_eq!(batches, [64, 64, 22, 0]);
    for ip in &addresses {
        assert_eq!(
            reading_summary(&poll_ready(node.limiter.peek(&facts_for_ip(ip), None, 1))),
            ["r allow 7"]
        );
    }
}

#[test]
fn removed_rule_drops_unsettled_usage() {
    for after in ["rules: []", "rules: [{ id: r, key_by: ip, limit: 10/d, on_fail: local }]"] {
        let node = single_node(&rules_with_limit("10/h"), &clock());
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 4));
        poll_ready(node.limiter.install(compile_rules(after))).unwrap();
        node.store.set_fault(StoreFault::None);
        assert_eq!(poll_ready(node.limiter.settle()), 1, "its unsettled usage is dropped");
        assert!(!node.limiter.has_unsettled());
    }
}

/// With several nodes, a key is charged at the store while its usage is unsettled. What the share
/// mirrors of that is not usage to settle.
#[test]
fn mirrored_charges_are_not_settled() {
    for algorithm in &ALGORITHMS[2..] {
        let clock = clock();
        let node = fleet(&rules_with_limit(algorithm), 2, &clock).remove(0);
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 40));
        node.store.set_fault(StoreFault::None);
        for _ in 0..4 {
            clock.advance(Micros::from_secs(3_600));
            assert!(charge(&node, 40), "{algorithm}");
        }
        let before = peek(&node);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), before, "{algorithm}");
    }
}

/// A charge stays in a sliding window for its full length, so what the store lost is not charged
/// again, except for what was admitted recently.
#[test]
fn lost_sliding_window_gets_recent_usage_only() {
    for algorithm in &ALGORITHMS[3..] {
        let node = single_node(&rules_with_limit(algorithm), &clock());
        assert!(charge(&node, 30));
        node.store.lose_data();
        node.store.set_fault(StoreFault::Unreachable);
        assert!(charge(&node, 20));
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.settle());
        assert_eq!(peek(&node), "r allow 80", "{algorithm}");
    }
}

/// Readings show whole requests, and one request may stand for a fraction: here the local bucket
/// holds 50 and the store 0.5.
#[test]
fn settled_store_is_never_below_local_level() {
    let clock = clock();
    let mut nodes = fleet(&rules_with_limit("100/h"), 2, &clock);
    let (other, node) = (nodes.remove(1), nodes.remove(0));
    node.store.set_nodes(1);
    let half = Micros::from_secs(18);
    assert!(charge(&node, 30));
    poll_ready(other.limiter.reset(&facts(IP), None));
    clock.advance(half);
    assert!(charge(&node, 1));
    node.store.set_fault(StoreFault::Unreachable);
    assert!(charge(&node, 20));
    clock.advance(half);
    assert_eq!(peek(&node), "r allow 50");
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.settle());
    clock.advance(half);
    assert_eq!(peek(&node), "r allow 50", "the local bucket holds 49.5");
}
