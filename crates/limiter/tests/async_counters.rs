//! Asynchronous rules: decisions on the node's view, and the flushes that report them.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::node::{SharingNode, sharing_nodes};
use common::{clock, facts, poll_ready};
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::store::Op;
use tidegate_core::time::{Clock as _, ManualClock, Micros};
use tidegate_fixtures::faulty_store::StoreFault;
use tidegate_limiter::{Decision, LeaseClock};
use tidegate_rules::Facts;

const INTERVAL: Micros = Micros::from_millis(100);

/// Nothing drains while a test lasts.
const HUNDRED: &str = "rules: [{ id: soft, key_by: user_id, limit: 100/h, consistency: async }]";

fn single(source: &str) -> (SharingNode, ManualClock) {
    let clock = clock();
    (sharing_nodes(source, 1, &clock).remove(0), clock)
}

fn user() -> Facts<'static> {
    facts(&[("user_id", "u1")])
}

fn remaining(decision: &Decision) -> u64 {
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

/// What the store has left, as seen by a peek.
fn left_at_store(node: &SharingNode) -> u64 {
    remaining(&common::poll_ready(node.limiter.peek(&user(), None, 1)))
}

fn flush_costs(node: &SharingNode) -> Vec<usize> {
    let calls = node.store.take_recorded_calls();
    calls.into_iter().filter(|(op, _)| *op == Op::Force).map(|(_, charges)| charges).collect()
}

#[test]
fn request_with_fresh_view_is_decided_without_store() {
    let (node, clock) = single(HUNDRED);
    let first = node.decide(&user(), 1);
    assert_eq!((first.answered_by(), remaining(&first)), (AnsweredBy::Store, 99));
    clock.advance(Micros::from_millis(200));
    let second = node.decide(&user(), 1);
    assert_eq!((second.answered_by(), remaining(&second)), (AnsweredBy::Async, 98));
    assert_eq!(left_at_store(&node), 99, "not flushed yet");
    node.sweep();
    assert_eq!(left_at_store(&node), 98);
    let stats = node.stats();
    assert_eq!((stats.units_admitted, stats.units_flushed, stats.units_open), (1, 1, 0));
}

#[test]
fn view_older_than_two_intervals_goes_to_store() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 1);
    clock.advance(Micros::new(2 * INTERVAL.get() + 1));
    assert_eq!(node.decide(&user(), 1).answered_by(), AnsweredBy::Store);
}

#[test]
fn unreachable_store_applies_on_fail_after_two_intervals() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 100/h, consistency: async,
        on_fail: deny }]";
    let (node, clock) = single(source);
    node.decide(&user(), 1);
    node.store.set_fault(StoreFault::Unreachable);
    for _ in 0..2 {
        clock.advance(INTERVAL);
        node.sweep();
        assert!(node.decide(&user(), 1).is_allowed());
    }
    clock.advance(Micros::from_millis(1));
    let refused = node.decide(&user(), 1);
    assert_eq!((refused.answered_by(), refused.is_allowed()), (AnsweredBy::Fallback, false));
    node.store.set_fault(StoreFault::None);
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 97, "the flushes that did not run were sent again");
}

#[test]
fn flush_that_may_have_run_is_not_repeated() {
    for fault in [StoreFault::AnswerLost, StoreFault::RequestLost] {
        let (node, clock) = single(HUNDRED);
        node.decide(&user(), 1);
        (0..5).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
        node.store.set_fault(fault.clone());
        clock.advance(INTERVAL);
        node.sweep();
        node.store.set_fault(StoreFault::None);
        assert_eq!(remaining(&node.decide(&user(), 1)), 93, "lost units stay open until an answer");
        clock.advance(INTERVAL);
        node.sweep();
        let left = if fault == StoreFault::AnswerLost { 93 } else { 98 };
        assert_eq!((left_at_store(&node), node.stats().units_lost), (left, 5), "{fault:?}");
        assert_eq!(node.stats().units_open, 0);
    }
}

/// Without this, the test above might pass although flushes are repeated.
#[cfg(feature = "seeded-bugs")]
#[test]
fn repeated_flush_counts_units_twice() {
    let (SharingNode { limiter, store }, clock) = single(HUNDRED);
    let limiter = limiter.with_seeded_bug(tidegate_limiter::SeededBug::FlushRepeated);
    let node = SharingNode { limiter, store };
    (0..6).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    for fault in [StoreFault::AnswerLost, StoreFault::None] {
        node.store.set_fault(fault);
        clock.advance(INTERVAL);
        node.sweep();
    }
    assert_eq!(left_at_store(&node), 89, "six were admitted, five of them counted twice");
}

#[test]
fn flush_that_did_not_run_is_put_back() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 1);
    (0..5).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    node.store.set_fault(StoreFault::Unreachable);
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!((node.stats().units_open, node.stats().units_lost), (5, 0));
    node.store.set_fault(StoreFault::None);
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!((left_at_store(&node), node.stats().units_open), (94, 0));
}

#[test]
fn flushes_of_many_counters_share_calls() {
    let (node, clock) = single(HUNDRED);
    for user in (0..65).map(|user| user.to_string()) {
        let facts: Facts<'_> = [("user_id", user.as_str())].into_iter().collect();
        node.decide(&facts, 1);
        assert_eq!(node.decide(&facts, 1).answered_by(), AnsweredBy::Async);
    }
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(flush_costs(&node), [64, 1]);
    assert_eq!(node.stats().flushes, 65);
}

#[test]
fn part_of_node_used_up_waits_for_flush() {
    let clock = clock();
    let nodes = sharing_nodes(HUNDRED, 4, &clock);
    nodes[0].decide(&user(), 1);
    (0..25).for_each(|_| assert!(nodes[0].decide(&user(), 1).is_allowed()));
    assert_eq!(nodes[0].stats().units_open, 25);
    let user = user();
    let mut waiting = pin!(nodes[0].limiter.decide(&user, 1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending(), "the part is open");
    nodes[0].run_tasks();
    let Poll::Ready(decision) = waiting.poll(&mut context) else { panic!("the flush is answered") };
    assert_eq!((decision.answered_by(), remaining(&decision)), (AnsweredBy::Store, 73));
}

#[test]
fn part_below_one_goes_to_store() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 3/h, consistency: async }]";
    let clock = clock();
    let nodes = sharing_nodes(source, 4, &clock);
    let by = |node: usize| nodes[node].decide(&user(), 1).answered_by();
    assert_eq!([by(0), by(0), by(1)], [AnsweredBy::Store; 3]);
    assert!(!nodes[2].decide(&user(), 1).is_allowed());
}

#[test]
fn fixed_window_is_empty_after_it_ends() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: { requests: 10, window: 1s,
        algorithm: fixed_window }, consistency: async }]";
    let (node, clock) = single(source);
    clock.advance(Micros::from_millis(800));
    (0..10).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    assert!(!node.decide(&user(), 1).is_allowed());
    clock.advance(INTERVAL);
    node.sweep();
    clock.advance(Micros::from_millis(99));
    assert!(!node.decide(&user(), 1).is_allowed());
    clock.advance(Micros::from_millis(1));
    let admitted = node.decide(&user(), 1);
    assert_eq!((admitted.answered_by(), remaining(&admitted)), (AnsweredBy::Async, 9));
}

#[test]
fn units_that_no_longer_fit_are_counted_as_overshoot() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 10/h, consistency: async }]";
    let clock = clock();
    let nodes = sharing_nodes(source, 2, &clock);
    nodes.iter().for_each(|node| assert!(node.decide(&user(), 1).is_allowed()));
    for node in &nodes {
        (0..5).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    }
    nodes.iter().for_each(SharingNode::run_tasks);
    let overshot: Vec<u64> = nodes.iter().map(|node| node.stats().units_overshot).collect();
    assert_eq!(overshot, [0, 2], "12 were admitted");
}

#[test]
fn debt_at_store_refuses_until_it_has_drained() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 100/s burst 10,
        consistency: async }]";
    let clock = clock();
    let nodes = sharing_nodes(source, 2, &clock);
    nodes.iter().for_each(|node| assert!(node.decide(&user(), 1).is_allowed()));
    for node in &nodes {
        (0..5).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
        node.run_tasks();
    }
    clock.advance(Micros::from_millis(29));
    assert!(!nodes[1].decide(&user(), 1).is_allowed(), "9.1 of the debt and the burst are used");
    clock.advance(Micros::from_millis(1));
    assert!(nodes[1].decide(&user(), 1).is_allowed());
}

#[test]
fn decision_by_lease_and_view_is_answered_by_lease() {
    let source = "rules:
      - { id: soft, key_by: user_id, limit: 1000/s burst 2000, consistency: async }
      - { id: hard, key_by: user_id, limit: 1000/s burst 2000, consistency: leased }";
    let (node, _) = single(source);
    let user = user();
    let by: Vec<AnsweredBy> =
        (0..12).map(|_| node.decide_waiting(&user, 1).answered_by()).collect();
    assert_eq!((by[0], by[11]), (AnsweredBy::Store, AnsweredBy::Lease));
}

#[test]
fn refusal_waits_at_least_for_next_flush() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 1000/s burst 10,
        consistency: async }]";
    let (node, clock) = single(source);
    (0..10).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    let refused = node.decide(&user(), 1);
    let (_, reading) = refused.tightest().unwrap();
    assert_eq!((refused.answered_by(), refused.is_allowed()), (AnsweredBy::Async, false));
    assert_eq!(reading.retry(), Retry::After(INTERVAL));
    clock.advance(INTERVAL);
    node.sweep();
    assert!(node.decide(&user(), 1).is_allowed());
}

#[test]
fn counter_that_only_refuses_is_flushed_with_cost_zero() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 100);
    node.store.take_recorded_calls();
    for _ in 0..5 {
        clock.advance(INTERVAL);
        assert_eq!(node.decide(&user(), 1).answered_by(), AnsweredBy::Async);
        node.sweep();
    }
    assert_eq!(flush_costs(&node), [1; 5]);
    assert_eq!((node.stats().units_flushed, node.stats().refused), (0, 5));
}

#[test]
fn idle_counter_is_dropped() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 1);
    node.decide(&user(), 1);
    for _ in 0..4 {
        clock.advance(INTERVAL);
        node.sweep();
    }
    assert_eq!((node.stats().counters, flush_costs(&node).len()), (0, 1));
}

#[test]
fn refusal_by_exact_rule_takes_back_what_was_admitted() {
    let source = "rules:
      - { id: soft, key_by: user_id, limit: 100/h, consistency: async }
      - { id: hard, key_by: user_id, limit: 2/h }";
    let (node, clock) = single(source);
    (0..2).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    (0..5).for_each(|_| assert!(!node.decide(&user(), 1).is_allowed()));
    assert_eq!(node.stats().units_open, 1);
    clock.advance(INTERVAL);
    node.sweep();
    let soft = common::poll_ready(node.limiter.peek(&user(), Some("soft"), 1));
    assert_eq!(remaining(&soft), 98);
}

/// The refunded unit of a refused request used to be lost with the counter's state.
#[test]
fn refusal_after_counter_was_dropped_refunds_flushed_unit() {
    let source = "rules:
      - { id: soft, key_by: user_id, limit: 100/h, consistency: async }
      - { id: hard, key_by: user_id, limit: 20/h, consistency: leased, lease: { ttl: 1s } }";
    let (node, clock) = single(source);
    (0..4).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    common::poll_ready(node.limiter.force(&user(), Some("hard"), 16));
    let facts = user();
    let mut decision = pin!(node.limiter.decide(&facts, 1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(decision.as_mut().poll(&mut context).is_pending(), "waits for a lease");
    let question = node.limiter.pop_lease_task().unwrap();
    for intervals in [1, 3] {
        (0..intervals).for_each(|_| clock.advance(INTERVAL));
        node.sweep();
    }
    assert_eq!(node.stats().counters, 0);
    common::poll_ready(node.limiter.run_lease_task(question));
    let Poll::Ready(decision) = decision.as_mut().poll(&mut context) else { panic!("answered") };
    assert!(!decision.is_allowed());
    node.run_tasks();
    let soft = common::poll_ready(node.limiter.peek(&user(), Some("soft"), 1));
    assert_eq!(remaining(&soft), 96);
}

#[test]
fn refusal_by_async_rule_charges_no_exact_rule() {
    let source = "rules:
      - { id: soft, key_by: user_id, limit: 2/h, consistency: async }
      - { id: hard, key_by: user_id, limit: 100/h }";
    let (node, _) = single(source);
    (0..2).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    (0..5).for_each(|_| assert!(!node.decide(&user(), 1).is_allowed()));
    let hard = common::poll_ready(node.limiter.peek(&user(), Some("hard"), 1));
    assert_eq!(remaining(&hard), 98);
}

#[test]
fn refund_before_flush_is_not_sent() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 1);
    let decision = node.decide(&user(), 7);
    common::poll_ready(node.limiter.refund_decision(decision));
    assert_eq!(node.stats().units_open, 0);
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 99);
}

#[test]
fn refund_after_flush_goes_to_store() {
    let (node, clock) = single(HUNDRED);
    node.decide(&user(), 1);
    let decision = node.decide(&user(), 7);
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 92);
    node.decide(&user(), 7);
    common::poll_ready(node.limiter.refund_decision(decision));
    assert_eq!(node.stats().units_open, 7, "the refund is of units that were flushed");
    assert_eq!(left_at_store(&node), 99);
}

#[test]
fn shadow_rule_never_makes_request_wait() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 2/h, consistency: async,
        mode: shadow }]";
    let (node, clock) = single(source);
    for _ in 0..6 {
        let decision = node.decide(&user(), 1);
        assert_eq!((decision.is_allowed(), decision.answered_by()), (true, AnsweredBy::Async));
        node.run_tasks();
    }
    assert_eq!((node.stats().units_admitted, node.stats().refused), (1, 4));
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 0, "the first request was charged later");
}

#[test]
fn node_that_stops_flushes_what_it_admitted() {
    let (node, _) = single(HUNDRED);
    (0..9).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    node.limiter.retire_leases();
    node.run_tasks();
    assert_eq!(left_at_store(&node), 91);
}

#[test]
fn edited_limit_keeps_what_was_admitted() {
    let (node, clock) = single(HUNDRED);
    (0..9).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    let edited = HUNDRED.replace("100/h", "50/h");
    let rules = tidegate_fixtures::server::compile_rules(&edited);
    common::poll_ready(node.limiter.install(rules)).unwrap();
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 41);
}

#[test]
fn batch_decides_on_view() {
    let (node, _) = single(HUNDRED);
    node.decide(&user(), 1);
    let (user, charge) = (user(), tidegate_limiter::QueryAction::Charge(1));
    let query =
        tidegate_limiter::DecisionQuery { facts: &user, action: charge, inline_limit: None };
    let decisions = common::poll_ready(node.limiter.decide_batch(&[query, query])).unwrap();
    assert_eq!(decisions[0].answered_by(), AnsweredBy::Async);
    assert_eq!(node.stats().units_open, 2);
    let decision = common::poll_ready(node.limiter.decide_no_queue(&user, 1));
    assert_eq!(decision.answered_by(), AnsweredBy::Async);
}

#[test]
fn reset_forgets_what_was_admitted() {
    let (node, clock) = single(HUNDRED);
    (0..5).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    poll_ready(node.limiter.reset(&user(), None));
    assert_eq!((node.stats().counters, node.stats().units_open), (0, 0));
    clock.advance(INTERVAL);
    node.sweep();
    assert_eq!(left_at_store(&node), 100);
}

#[test]
fn stats_count_calls_and_counters() {
    let (node, clock) = single(HUNDRED);
    for name in 0..3 {
        let facts: Facts<'_> = [("user_id", name.to_string())].into_iter().collect();
        (0..3).for_each(|_| assert!(node.decide(&facts, 1).is_allowed()));
    }
    let before = node.stats();
    assert_eq!((before.counters, before.units_open, before.units_admitted), (3, 6, 6));
    clock.advance(INTERVAL);
    node.sweep();
    let after = node.stats();
    assert_eq!((after.flush_calls, after.flushes, after.units_flushed), (1, 3, 6));
}

/// A node of the store that answers must not count the units a second time.
#[test]
fn partly_answered_flush_resends_other_part() {
    let source = "rules:
      - { id: soft, key_by: user_id, limit: 100/h, consistency: async }
      - { id: lost, key_by: user_id, limit: 100/h, consistency: async }";
    let (node, clock) = single(source);
    (0..6).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    node.store.set_fault(StoreFault::PartUnreachable(&["lost"]));
    clock.advance(INTERVAL);
    node.sweep();
    let stats = node.stats();
    assert_eq!((stats.units_flushed, stats.units_open, stats.units_lost), (5, 5, 0));
    node.store.set_fault(StoreFault::None);
    clock.advance(INTERVAL);
    node.sweep();
    let left = |rule| remaining(&poll_ready(node.limiter.peek(&user(), Some(rule), 1)));
    assert_eq!((left("soft"), left("lost"), node.stats().units_open), (94, 94, 0));
}

#[test]
fn full_memory_keeps_its_counters() {
    let clock = clock();
    let SharingNode { limiter, store } = sharing_nodes(HUNDRED, 1, &clock).remove(0);
    let lease_clock = clock.clone();
    let lease_clock = LeaseClock::new(move || lease_clock.now());
    let node = SharingNode { limiter: limiter.with_leases(lease_clock, 1), store };
    let by = |user: u32| {
        let facts: Facts<'_> = [("user_id", user.to_string())].into_iter().collect();
        node.decide(&facts, 1).answered_by()
    };
    (0..300).for_each(|user| assert_eq!(by(user), AnsweredBy::Store));
    let counters = node.stats().counters;
    assert!((32..=64).contains(&counters), "one in each of 64 parts: {counters}");
    let on_view = || (0..300).filter(|user| by(*user) == AnsweredBy::Async).count();
    assert_eq!(on_view(), counters, "the others go to the store");
    // The answers to direct requests keep a view fresh, also while the memory is full.
    clock.advance(Micros::new(2 * INTERVAL.get() + 1));
    assert_eq!(on_view(), 0);
    assert_eq!(on_view(), counters);
}

#[test]
fn removed_rule_drops_what_was_admitted() {
    let (node, clock) = single(HUNDRED);
    (0..9).for_each(|_| assert!(node.decide(&user(), 1).is_allowed()));
    let rules = tidegate_fixtures::server::compile_rules("rules: []").for_shared_store();
    poll_ready(node.limiter.install(rules)).unwrap();
    assert_eq!((node.stats().counters, node.stats().units_open), (0, 0));
    clock.advance(INTERVAL);
    node.sweep();
    assert!(flush_costs(&node).is_empty());
}
