//! `on_fail: local`: local buckets, which mirror the store, decide while it is unreachable, each
//! with a share of the limit.

mod common;

use std::sync::Arc;

use common::{clock, facts, poll_ready, reading_summary};
use tidegate_core::decision::{AnsweredBy, Reading, Retry};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::{
    FaultyStore, StoreFault, TestNode, fleet, single_node, small_store,
};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::{LeaseClock, Limiter};

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];
const OTHER: &[(&str, &str)] = &[("ip", "203.0.113.8")];

const HUNDRED: &str =
    "rules: [{ id: r, key_by: ip, limit: 100/h using fixed_window, on_fail: local }]";

/// Returns how many of `tries` requests are allowed.
fn count_admitted(node: &TestNode, tries: usize) -> usize {
    (0..tries).filter(|_| poll_ready(node.limiter.decide(&facts(IP), 1)).is_allowed()).count()
}

fn peek(node: &TestNode) -> Vec<String> {
    reading_summary(&poll_ready(node.limiter.peek(&facts(IP), None, 1)))
}

#[test]
fn outage_admits_node_share() {
    let nodes = fleet(HUNDRED, 4, &clock());
    nodes.iter().for_each(|node| node.store.set_fault(StoreFault::Unreachable));
    let first = poll_ready(nodes[0].limiter.decide(&facts(IP), 1));
    assert_eq!(first.answered_by(), AnsweredBy::Fallback);
    assert_eq!(reading_summary(&first), ["r allow 24"], "a quarter of 100");
    assert_eq!(count_admitted(&nodes[0], 50), 24);
    assert_eq!(nodes[1..].iter().map(|node| count_admitted(node, 50)).sum::<usize>(), 75);
    let refused = poll_ready(nodes[0].limiter.decide(&facts(IP), 1));
    assert_eq!(refused.tightest().unwrap().1.retry(), Retry::After(Micros::from_secs(3_600)));
    assert!(poll_ready(nodes[0].limiter.decide(&facts(OTHER), 1)).is_allowed());
}

#[test]
fn exhausted_client_gets_no_fresh_share() {
    let nodes = fleet(HUNDRED, 4, &clock());
    assert_eq!(count_admitted(&nodes[0], 20), 20);
    assert_eq!(count_admitted(&nodes[1], 200), 80);
    nodes.iter().for_each(|node| node.store.set_fault(StoreFault::Unreachable));
    assert_eq!(count_admitted(&nodes[0], 50), 5, "this node had mirrored 20 of its 25");
    assert_eq!(count_admitted(&nodes[1], 50), 0, "this node had mirrored 80, more than its share");
}

/// Refused requests do not charge the store, so they must not fill the local bucket either.
#[test]
fn only_store_charges_are_mirrored() {
    let node = single_node(
        "rules:
           - { id: r, key_by: ip, limit: 10/h using fixed_window, on_fail: local }
           - { id: all, key_by: global, limit: 3/h using fixed_window }",
        &clock(),
    );
    assert_eq!(count_admitted(&node, 50), 3);
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(peek(&node), ["r allow 7", "all allow 3"]);
}

#[test]
fn partial_store_charges_are_mirrored() {
    let node = single_node(
        "on_fail: local
rules:
  - { id: answered, key_by: ip, limit: 10/h using fixed_window }
  - { id: lost, key_by: ip, limit: 10/h using fixed_window }",
        &clock(),
    );
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    assert_eq!(count_admitted(&node, 4), 4);
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(peek(&node), ["answered allow 6", "lost allow 6"]);
}

#[test]
fn refunds_and_resets_are_mirrored() {
    for algorithm in ["token_bucket", "sliding_window_log", "sliding_window_counter"] {
        let clock = clock();
        let node = single_node(
            &format!(
                "rules: [{{ id: r, key_by: ip, limit: 10/h using {algorithm}, on_fail: local }}]"
            ),
            &clock,
        );
        poll_ready(node.limiter.decide(&facts(IP), 2));
        clock.advance(Micros::new(1));
        let receipt = poll_ready(node.limiter.decide(&facts(IP), 3));
        let at = receipt.now();
        poll_ready(node.limiter.refund_decision(receipt));
        node.store.set_fault(StoreFault::Unreachable);
        assert_eq!(peek(&node), ["r allow 8"], "{algorithm}: refunded in the local bucket too");
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.force(&facts(IP), None, 4));
        poll_ready(node.limiter.refund(&facts(IP), None, 3, at));
        node.store.set_fault(StoreFault::Unreachable);
        assert_eq!(peek(&node), ["r allow 7"], "{algorithm}: forced 4, refunded 3");
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.reset(&facts(IP), None));
        node.store.set_fault(StoreFault::Unreachable);
        assert_eq!(peek(&node), ["r allow 10"], "{algorithm}");
    }
}

#[test]
fn outage_applies_operations_to_local_share() {
    let clock = clock();
    let node = single_node(HUNDRED, &clock);
    node.store.set_fault(StoreFault::Unreachable);
    let forced = poll_ready(node.limiter.force(&facts(IP), None, 120));
    assert_eq!(forced.answered_by(), AnsweredBy::Fallback);
    assert_eq!(peek(&node), ["r deny 0"]);
    poll_ready(node.limiter.refund(&facts(IP), None, 50, None));
    assert_eq!(peek(&node), ["r allow 30"]);
    poll_ready(node.limiter.reset(&facts(IP), None));
    assert_eq!(peek(&node), ["r allow 100"]);
    assert!(!node.limiter.has_unsettled(), "a reset clears the unsettled usage");
    let explained = poll_ready(node.limiter.explain(&facts(IP), 1));
    assert!(explained.why.contains("r has the least left"), "{}", explained.why);
}

#[test]
fn local_receipt_refunds_local_share_only() {
    let node = single_node(HUNDRED, &clock());
    poll_ready(node.limiter.decide(&facts(IP), 10));
    node.store.set_fault(StoreFault::Unreachable);
    let receipt = poll_ready(node.limiter.decide(&facts(IP), 7));
    let kept = poll_ready(node.limiter.decide(&facts(IP), 2));
    assert!(kept.is_allowed());
    node.store.set_fault(StoreFault::None);
    node.store.take_recorded_calls();
    poll_ready(node.limiter.refund_decision(receipt));
    assert_eq!(
        node.store.take_recorded_calls(),
        [],
        "the store had not charged it, so it gets no refund"
    );
    assert_eq!(peek(&node), ["r allow 88"], "decided locally until the usage is settled");
    poll_ready(node.limiter.settle());
    assert_eq!(peek(&node), ["r allow 88"], "only the charge that was not refunded is settled");
}

#[test]
fn outage_keeps_warnings_and_bans() {
    let node = single_node(
        "on_fail: local
rules:
  - { id: warned, match: { path: /w }, mode: warn, warn: { allow: 1, period: 1m }, key_by: ip, limit: 1/h }
  - { id: banned, match: { path: /b }, key_by: ip, limit: 1/h, ban: { after: 2, within: 1m, for: 10s } }",
        &clock(),
    );
    node.store.set_fault(StoreFault::Unreachable);
    let verdicts = |path: &'static [(&'static str, &'static str)]| -> Vec<String> {
        let decide =
            || reading_summary(&poll_ready(node.limiter.decide(&facts(path), 1))).remove(0);
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
fn outage_divides_queue_rate_and_capacity() {
    let nodes = fleet(
        "rules: [{ id: q, key_by: ip, on_fail: local, limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]",
        2,
        &clock(),
    );
    nodes[0].store.set_fault(StoreFault::Unreachable);
    let delays: Vec<_> = (0..4)
        .map(|_| {
            let decision = poll_ready(nodes[0].limiter.decide(&facts(IP), 1));
            (decision.is_allowed(), decision.delay().get())
        })
        .collect();
    assert_eq!(delays, [(true, 0), (true, 200_000), (true, 400_000), (false, 0)]);
}

#[test]
fn cost_above_share_gets_retry_after() {
    let nodes = fleet(HUNDRED, 4, &clock());
    nodes[0].store.set_fault(StoreFault::Unreachable);
    let retry = |cost| {
        let decision = poll_ready(nodes[0].limiter.decide(&facts(IP), cost));
        decision.tightest().unwrap().1.retry()
    };
    assert_eq!(retry(26), Retry::After(Micros::from_secs(1)));
    assert_eq!(retry(101), Retry::Never);
}

#[test]
fn share_follows_node_count_keeping_usage() {
    let clock = clock();
    let node = single_node("rules: [{ id: r, key_by: ip, limit: 100/h, on_fail: local }]", &clock);
    poll_ready(node.limiter.decide(&facts(IP), 10));
    let peek_with_nodes = |nodes: u32| {
        node.store.set_nodes(nodes);
        node.store.set_fault(StoreFault::None);
        poll_ready(node.limiter.peek(&facts(IP), None, 1));
        node.store.set_fault(StoreFault::Unreachable);
        peek(&node)
    };
    assert_eq!(peek_with_nodes(4), ["r allow 15"]);
    assert_eq!(peek_with_nodes(1), ["r allow 90"]);
    assert_eq!(peek_with_nodes(4), ["r allow 15"]);
    // A share drains completely within an hour, whatever its size.
    assert_eq!(count_admitted(&node, 5), 5);
    clock.advance(Micros::from_secs(3_600 / 5));
    assert_eq!(peek(&node), ["r allow 15"], "a fifth of an hour drains 5, not 20");
}

/// The share follows the current number of nodes, not the number when the rule last matched a
/// request.
#[test]
fn idle_rule_share_follows_node_count() {
    for reload in [false, true] {
        let node = single_node(HUNDRED, &clock());
        node.store.set_nodes(4);
        if reload {
            poll_ready(node.limiter.install(compile_rules(HUNDRED))).unwrap();
        }
        node.store.set_fault(StoreFault::Unreachable);
        assert_eq!(count_admitted(&node, 150), 25, "a quarter; reload: {reload}");
        let node = fleet(HUNDRED, 4, &clock()).remove(0);
        node.store.set_nodes(1);
        node.store.set_fault(StoreFault::Unreachable);
        assert_eq!(count_admitted(&node, 150), 100, "no other node is left");
    }
}

#[test]
fn outage_rule_change_keeps_usage() {
    let node = single_node(HUNDRED, &clock());
    poll_ready(node.limiter.decide(&facts(IP), 10));
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(count_admitted(&node, 20), 20);
    poll_ready(node.limiter.install(compile_rules(
        "rules:
           - { id: new, key_by: ip, limit: 5/h, on_fail: local }
           - { id: r, key_by: ip, limit: 50/h using fixed_window, on_fail: local }",
    )))
    .unwrap();
    assert_eq!(peek(&node), ["new allow 5", "r allow 20"]);
    assert_eq!(count_admitted(&node, 10), 5);
    node.store.set_fault(StoreFault::None);
    poll_ready(node.limiter.settle());
    assert_eq!(peek(&node), ["new deny 0", "r allow 15"], "10 + 20 + 5 of 50");
}

#[test]
fn local_rules_add_no_store_calls() {
    let source = |on_fail: &str| {
        format!(
            "rules: [{{ id: r, key_by: ip, limit: 100/h using fixed_window, on_fail: {on_fail} }}]"
        )
    };
    for on_fail in ["allow", "deny"] {
        let node = single_node(&source(on_fail), &clock());
        count_admitted(&node, 3);
        assert_eq!(node.store.take_recorded_calls(), [(Op::Charge, 1); 3]);
        assert_eq!(node.limiter.local().unwrap().usage().keys, 0, "nothing is mirrored");
    }
    let node = single_node(&source("local"), &clock());
    count_admitted(&node, 3);
    assert_eq!(node.store.take_recorded_calls(), [(Op::Charge, 1); 3]);
    assert_eq!(node.limiter.local().unwrap().usage().keys, 1);
    assert!(!node.limiter.has_unsettled());
}

/// An edit that makes the share drain faster neither drains the time before it nor forgets it.
#[test]
fn edited_share_drains_faster_from_edit_on() {
    let rules = |requests| {
        format!("rules: [{{ id: r, key_by: ip, limit: {requests}/h burst 100, on_fail: local }}]")
    };
    let clock = clock();
    let node = single_node(&rules(360), &clock);
    poll_ready(node.limiter.decide(&facts(IP), 100));
    clock.advance(Micros::from_secs(100));
    poll_ready(node.limiter.install(compile_rules(&rules(3_600)))).unwrap();
    clock.advance(Micros::from_secs(20));
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(peek(&node), ["r allow 30"], "100 s at 0.1 per second, 20 s at 1 per second");
}

/// A node that decides asynchronous rules by its view, with a local share that `local` counts.
fn async_node<L: Store>(source: &str, local: L) -> (Limiter<FaultyStore, L>, FaultyStore) {
    let clock = clock();
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let limiter = Limiter::new(store.clone(), compile_rules(source).for_shared_store())
        .with_local(local)
        .with_leases(LeaseClock::new(move || clock.now()), 1 << 20);
    (limiter, store)
}

#[test]
fn refund_reaches_local_share_too() {
    let source =
        "rules: [{ id: soft, key_by: ip, limit: 100/h, on_fail: local, consistency: async }]";
    let (limiter, store) = async_node(source, small_store(&clock()));
    for by in [AnsweredBy::Store, AnsweredBy::Async] {
        store.set_fault(StoreFault::None);
        let decision = poll_ready(limiter.decide(&facts(IP), 7));
        assert_eq!(decision.answered_by(), by);
        poll_ready(limiter.refund_decision(decision));
        store.set_fault(StoreFault::Unreachable);
        let left = reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
        assert_eq!(left, ["soft allow 100"], "{by:?}");
    }
}

/// A store whose clock moves by 36 seconds with each call.
struct TickingStore(ManualMemoryStore, ManualClock);

impl Store for TickingStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.1.advance(Micros::from_secs(36));
        self.0.apply_now(op, charges, readings);
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.1.now())
    }
}

/// The share mirrors what the store charged first, then what the node admitted. What may have
/// drained since the first is not refunded.
#[test]
fn refund_counts_from_first_mirrored_charge() {
    let source = "on_fail: local
rules:
  - { id: exact, key_by: ip, limit: 100/h }
  - { id: soft, key_by: ip, limit: 100/h, consistency: async }";
    let clock = clock();
    let (limiter, store) = async_node(source, TickingStore(small_store(&clock), clock));
    poll_ready(limiter.decide(&facts(IP), 50));
    let decision = poll_ready(limiter.decide(&facts(IP), 40));
    poll_ready(limiter.refund_decision(decision));
    store.set_fault(StoreFault::Unreachable);
    let left = reading_summary(&poll_ready(limiter.peek(&facts(IP), None, 1)));
    // One unit drains with each call. `exact` was mirrored in call 2 and refunded in call 5, `soft`
    // in calls 3 and 7: 37 and 35 are refunded. Call 8 reads.
    assert_eq!(left, ["exact allow 54", "soft allow 52"]);
}
