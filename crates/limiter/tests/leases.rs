//! Leased rules on one node: when it asks the store, what it decides itself, and what it returns.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use common::node::{SharingNode, sharing_nodes};
use common::{clock, facts, poll_ready, reading_summary};
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::sizing::LEASED_COUNTER_BYTES;
use tidegate_limiter::{Decision, LeaseClock, LeaseStats, Limiter};
use tidegate_rules::{Facts, RuleSet};

/// 999 of it are lent, for 100 ms each.
const HOT: &str = "rules: [{ id: hot, key_by: user_id, limit: 1000/h, consistency: leased }]";

fn single(source: &str) -> (SharingNode, ManualClock) {
    let clock = clock();
    (sharing_nodes(source, 1, &clock).remove(0), clock)
}

fn user() -> Facts<'static> {
    facts(&[("user_id", "ann")])
}

/// The rules of a node that shares its store.
fn shared_rules(source: &str) -> RuleSet {
    compile_rules(source).for_shared_store()
}

fn decide(node: &SharingNode) -> Decision {
    node.decide_waiting(&user(), 1)
}

fn count_allowed(node: &SharingNode, tries: usize) -> usize {
    (0..tries).filter(|_| decide(node).is_allowed()).count()
}

fn stats(node: &SharingNode) -> LeaseStats {
    node.limiter.lease_stats().unwrap()
}

fn left_at_store(node: &SharingNode) -> u64 {
    let peek = poll_ready(node.limiter.peek(&user(), None, 1));
    peek.tightest().unwrap().1.numbers.unwrap().remaining
}

/// A node that holds five of six leased units, after five requests.
fn node_with_lease(source: &str) -> (SharingNode, ManualClock) {
    let (node, clock) = single(source);
    assert_eq!(count_allowed(&node, 5), 5);
    assert_eq!((stats(&node).units_granted, stats(&node).units_held), (6, 5));
    (node, clock)
}

#[test]
fn fifth_request_of_lease_asks_store() {
    let (node, _) = single(HOT);
    let mut by: Vec<AnsweredBy> = (0..4).map(|_| decide(&node).answered_by()).collect();
    assert_eq!(stats(&node), LeaseStats::default(), "four requests take no memory");
    by.extend((0..3).map(|_| decide(&node).answered_by()));
    let (store, lease) = (AnsweredBy::Store, AnsweredBy::Lease);
    assert_eq!(by, [store, store, store, store, store, lease, lease]);
    let calls: Vec<bool> = node.store.take_recorded_calls().iter().map(is_grant).collect();
    assert_eq!(calls, [false, false, false, false, true]);
    // One more than five requests need.
    let expected = LeaseStats {
        counters: 1,
        units_held: 3,
        units_granted: 6,
        units_spent: 3,
        questions: 1,
        ..LeaseStats::default()
    };
    assert_eq!(stats(&node), expected);
    assert_eq!(left_at_store(&node), 999 - 4 - 6);
}

fn is_grant((op, _): &(Op, usize)) -> bool {
    matches!(op, Op::Grant(_))
}

#[test]
fn node_without_leases_has_no_stats() {
    let limiter = Limiter::new(small_store(&clock()), compile_rules(HOT));
    assert_eq!((limiter.lease_stats(), limiter.async_stats()), (None, None));
    assert!(limiter.pop_lease_task().is_none());
}

#[test]
fn memory_limits_number_of_leased_counters() {
    let clock = clock();
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let lease_clock = clock.clone();
    let lease_clock = LeaseClock::new(move || lease_clock.now());
    // Asynchronous counters have the other half.
    let bytes = 2 * 10 * LEASED_COUNTER_BYTES;
    let limiter = Limiter::new(store.clone(), shared_rules(HOT)).with_leases(lease_clock, bytes);
    let node = SharingNode { limiter, store };
    for name in 0..300 {
        let facts: Facts<'_> = [("user_id", name.to_string())].into_iter().collect();
        assert!((0..9).all(|_| node.decide_waiting(&facts, 1).is_allowed()));
    }
    assert_eq!(stats(&node).counters, 10);
}

#[test]
fn unused_units_return_when_lease_has_ended() {
    let (node, clock) = node_with_lease(HOT);
    clock.advance(Micros::from_millis(50));
    node.sweep();
    assert_eq!((stats(&node).counters, stats(&node).units_held), (1, 5), "it is in use");
    clock.advance(Micros::from_millis(50));
    node.sweep();
    let stats = stats(&node);
    assert_eq!((stats.counters, stats.units_held, stats.units_returned), (0, 0, 5));
    assert_eq!(left_at_store(&node), 999 - 5);
}

#[test]
fn node_that_stops_returns_its_units() {
    let (node, _) = node_with_lease(HOT);
    node.limiter.retire_leases();
    node.run_tasks();
    assert_eq!((stats(&node).units_held, stats(&node).units_returned), (0, 5));
    assert_eq!(left_at_store(&node), 999 - 5);
}

#[test]
fn refusal_by_other_rule_spends_no_unit() {
    let (node, _) = single(
        "rules:
           - { id: hot, key_by: user_id, limit: 1000/h, consistency: leased }
           - { id: small, key_by: user_id, limit: 7/h }",
    );
    assert_eq!(count_allowed(&node, 7), 7);
    let before = stats(&node);
    let refused = decide(&node);
    assert!(!refused.is_allowed());
    assert_eq!(stats(&node), before);
    let held = refused.readings().next().unwrap().1.numbers.unwrap();
    assert_eq!(held.remaining, 999 - 7, "the units that were given back count");
}

#[test]
fn refunded_unit_goes_back_into_its_lease() {
    let window = HOT.replace("1000/h", "1000/h using fixed_window");
    let (node, clock) = node_with_lease(&window);
    let first = decide(&node);
    assert!(first.charged_at().is_some_and(|at| at == clock.now()));
    poll_ready(node.limiter.refund_decision(first));
    assert_eq!((stats(&node).units_held, stats(&node).units_spent), (5, 1));
    assert_eq!(left_at_store(&node), 1_000 - 4 - 6, "the store has nothing to do with it");
    let late = decide(&node);
    clock.advance(Micros::from_millis(100));
    node.sweep();
    poll_ready(node.limiter.refund_decision(late));
    assert_eq!(left_at_store(&node), 1_000 - 5, "after its lease it goes back to the store");
}

/// A later date would make the store refund what has drained already.
#[test]
fn leased_charge_is_dated_by_its_grant() {
    let (node, clock) = node_with_lease(HOT);
    let granted_at = clock.now();
    clock.advance(Micros::from_millis(10));
    let decision = decide(&node);
    assert_eq!(decision.answered_by(), AnsweredBy::Lease);
    assert_eq!((decision.charged_at(), decision.now()), (Some(granted_at), Some(clock.now())));
}

#[test]
fn store_that_is_short_is_not_asked_each_time() {
    let (node, clock) =
        single("rules: [{ id: hot, key_by: user_id, limit: 10/h, consistency: leased }]");
    let mut allowed = count_allowed(&node, 100);
    assert!((5..10).contains(&allowed), "{allowed}");
    assert!(node.store.take_recorded_calls().len() < 20);
    let refused = decide(&node);
    assert_eq!((refused.is_allowed(), refused.answered_by()), (false, AnsweredBy::Lease));
    assert!(stats(&node).refused > 50, "{:?}", stats(&node));
    // Later it asks for the rest.
    for _ in 0..10 {
        clock.advance(Micros::from_millis(100));
        node.sweep();
        allowed += count_allowed(&node, 100);
    }
    assert_eq!(allowed, 9, "all that is lent");
}

#[test]
fn leased_shadow_rule_never_refuses_or_asks_twice() {
    let (node, _) = single(
        "rules: [{ id: hot, mode: shadow, key_by: user_id, limit: 10/h, consistency: leased }]",
    );
    let verdicts: Vec<Verdict> = (0..60)
        .map(|_| {
            let decision = node.decide(&user(), 1);
            node.run_tasks();
            decision.readings().next().unwrap().1.verdict
        })
        .collect();
    assert!(verdicts.iter().all(|verdict| !verdict.refuses()));
    assert!(verdicts.ends_with(&[Verdict::ShadowDeny; 30]), "{verdicts:?}");
    assert!(node.store.take_recorded_calls().len() < 20, "the node decides");
}

#[test]
fn reset_forgets_leased_units() {
    let (node, _) = node_with_lease(HOT);
    poll_ready(node.limiter.reset(&user(), None));
    assert_eq!((stats(&node).counters, stats(&node).units_held), (0, 0));
    assert_eq!(left_at_store(&node), 999);
}

#[test]
fn explanation_shows_units_that_node_holds() {
    let (node, _) = node_with_lease(HOT);
    let explained = poll_ready(node.limiter.explain(&user(), 1));
    assert_eq!(explained.rules[0].units, Some(5));
    let consistency = &explained.rules[0].consistency.as_ref().unwrap().description;
    assert!(
        consistency.starts_with("leased") && consistency.contains("burst 999"),
        "{consistency}"
    );
    let whole = "rules: [{ id: hot, key_by: user_id, limit: 1000/h, consistency: leased,
        lease: { bound: plus_ttl } }]";
    let explained = poll_ready(single(whole).0.limiter.explain(&user(), 1));
    let consistency = &explained.rules[0].consistency.as_ref().unwrap().description;
    assert!(!consistency.contains("burst"), "{consistency}");
}

#[test]
fn unchanged_rule_keeps_its_lease_after_edit() {
    let (node, _) = node_with_lease(HOT);
    for source in [
        HOT.to_owned(),
        "rules:
           - { id: new, match: { path: /new }, key_by: path, limit: 5/h }
           - { id: hot, key_by: user_id, limit: 1000/h, consistency: leased }"
            .to_owned(),
    ] {
        poll_ready(node.limiter.install(shared_rules(&source))).unwrap();
        node.run_tasks();
        let before = stats(&node);
        assert_eq!((before.counters, before.units_returned), (1, 0));
        assert_eq!(decide(&node).answered_by(), AnsweredBy::Lease);
        assert_eq!(stats(&node).units_held, before.units_held - 1);
    }
}

#[test]
fn edited_limit_returns_lease_and_starts_again() {
    let (node, _) = node_with_lease(HOT);
    let smaller = "rules: [{ id: hot, key_by: user_id, limit: 40/h, consistency: leased }]";
    poll_ready(node.limiter.install(shared_rules(smaller))).unwrap();
    node.run_tasks();
    assert_eq!((stats(&node).units_held, stats(&node).units_returned), (0, 5));
    assert!(decide(&node).is_allowed());
    assert_eq!(stats(&node).units_granted, 6 + 6, "its demand counts as that of a hot counter");
    let allowed = 5 + 1 + count_allowed(&node, 100);
    assert!((20..=40).contains(&allowed), "{allowed}");
}

/// The answer to a question of the counter's earlier state must not be taken for a new one's.
#[test]
fn late_answer_does_not_answer_later_question() {
    let (node, _) = single(HOT);
    (0..4).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    let user = user();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(node.limiter.decide(&user, 1));
    assert!(first.as_mut().poll(&mut context).is_pending());
    let late = node.limiter.pop_lease_task().unwrap();
    let smaller = "rules: [{ id: hot, key_by: user_id, limit: 500/h, consistency: leased }]";
    poll_ready(node.limiter.install(shared_rules(smaller))).unwrap();
    let mut second = pin!(node.limiter.decide(&user, 1));
    assert!(second.as_mut().poll(&mut context).is_pending());
    poll_ready(node.limiter.run_lease_task(late));
    assert_eq!(stats(&node).units_held, 0);
    assert!(second.as_mut().poll(&mut context).is_pending());
    node.run_tasks();
    assert!(second.poll(&mut context).is_ready());
}

/// A local share counts what the node admitted on a lease.
#[test]
fn share_in_outage_counts_leased_requests() {
    let source = "rules: [{ id: hot, key_by: user_id, limit: 1000/h using fixed_window,
        on_fail: local, consistency: leased }]";
    let clock = clock();
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let lease_clock = clock.clone();
    let lease_clock = LeaseClock::new(move || lease_clock.now());
    let limiter = Limiter::new(store.clone(), shared_rules(source))
        .with_local(small_store(&clock))
        .with_leases(lease_clock, 1 << 20);
    let run = || {
        while let Some(task) = limiter.pop_lease_task() {
            poll_ready(limiter.run_lease_task(task));
        }
    };
    let decide = || {
        let user = user();
        let mut decision = pin!(limiter.decide(&user, 1));
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let std::task::Poll::Ready(decision) = decision.as_mut().poll(&mut context) {
                return decision.is_allowed();
            }
            run();
        }
    };
    assert!((0..40).all(|_| decide()));
    store.set_fault(StoreFault::Unreachable);
    clock.advance(Micros::from_millis(100));
    limiter.sweep_leases();
    run();
    assert_eq!((0..1_000).filter(|_| decide()).count(), 960);
}

/// The store decides the second rule by itself, in a smaller plan.
#[test]
fn refund_of_mixed_decision_restores_both_rules() {
    let (node, _) = single(
        "rules:
           - { id: hot, key_by: user_id, limit: 1000/h using fixed_window, consistency: leased }
           - { id: exact, key_by: user_id, limit: 100/h using sliding_window_log }",
    );
    assert_eq!(count_allowed(&node, 9), 9);
    let held = stats(&node).units_held;
    let decision = decide(&node);
    assert_eq!(stats(&node).units_held, held - 1);
    poll_ready(node.limiter.refund_decision(decision));
    assert_eq!(stats(&node).units_held, held);
    assert_eq!(left_at_store(&node), 100 - 9);
}

/// A store on which something happens while it answers a charge.
struct SlowStore {
    store: Arc<ManualMemoryStore>,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

impl Store for SlowStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.store.apply_now(op, charges, readings);
        let meanwhile = self.meanwhile.lock().unwrap().take_if(|_| op == Op::Charge);
        if let Some(happen) = meanwhile {
            happen();
        }
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.store.clock().now())
    }
}

/// Decides a request during whose store call the lease ends and others use up `used` units of the
/// leased rule. Refunds a refused request. Returns whether it was allowed, and what each rule has
/// left when all is returned.
fn decide_while_lease_ends(used: u32) -> (bool, Vec<String>) {
    let source = "rules:
        - { id: hot, key_by: user_id, limit: 1000/h using fixed_window, consistency: leased }
        - { id: exact, key_by: user_id, limit: 100/h using fixed_window }
        - { id: all, key_by: user_id, charge: always, limit: 100/h using fixed_window }";
    let clock = clock();
    let (store, meanwhile) = (Arc::new(small_store(&clock)), Arc::default());
    let slow = SlowStore { store: Arc::clone(&store), meanwhile: Arc::clone(&meanwhile) };
    let lease_clock = clock.clone();
    let lease_clock = LeaseClock::new(move || lease_clock.now());
    let limiter = Limiter::new(slow, shared_rules(source)).with_leases(lease_clock, 1 << 20);
    let user = user();
    let run_tasks = || {
        while let Some(task) = limiter.pop_lease_task() {
            poll_ready(limiter.run_lease_task(task));
        }
    };
    for _ in 0..8 {
        let mut decision = pin!(limiter.decide(&user, 1));
        let mut context = Context::from_waker(Waker::noop());
        while decision.as_mut().poll(&mut context).is_pending() {
            run_tasks();
        }
    }
    let other = Limiter::new(FaultyStore::new(store, 1), shared_rules(source));
    let happen: Meanwhile = Box::new(move || {
        clock.advance(Micros::from_millis(100));
        let facts = facts(&[("user_id", "ann")]);
        poll_ready(other.force(&facts, Some("hot"), used));
    });
    *meanwhile.lock().unwrap() = Some(happen);
    let decision = poll_ready(limiter.decide(&user, 1));
    limiter.sweep_leases();
    run_tasks();
    let allowed = decision.is_allowed();
    if !allowed {
        poll_ready(limiter.refund_decision(decision));
    }
    (allowed, reading_summary(&poll_ready(limiter.peek(&user, None, 1))))
}

/// A unit must not be spent after its lease: the store charges the request instead.
#[test]
fn unit_whose_lease_ended_meanwhile_is_replaced() {
    let (allowed, left) = decide_while_lease_ends(0);
    assert!(allowed);
    // The unit itself is lost: of twelve, ten were returned.
    assert_eq!(left, ["hot allow 990", "exact allow 91", "all allow 91"]);
}

#[test]
fn request_without_replacement_charges_no_other_rule() {
    let (allowed, left) = decide_while_lease_ends(1_000);
    assert!(!allowed);
    // The refusal itself took back what it had charged, except for `all`, which counts refusals.
    // So there is only that left to refund.
    assert_eq!(left, ["hot deny 0", "exact allow 92", "all allow 92"]);
}
