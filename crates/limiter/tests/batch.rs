//! Batches of queries: all queries are charged or none, whichever counters they share.

#![expect(clippy::expect_used, reason = "test helpers may panic")]

mod common;

use common::{clock, facts, limiter, poll_ready, reading_summary};
use proptest::prelude::*;
use tidegate_core::decision::Retry;
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, single_node};
use tidegate_limiter::{Decision, DecisionQuery, QueryAction, StoreUnavailableError};
use tidegate_rules::{Facts, InlineLimit};
use tidegate_testkit::property::{cases, check_property};

const RULES: &str = "facts: [user, tenant]
rules:
  - { id: user, match: { user: '*' }, key_by: user, limit: 5/h using fixed_window }
  - { id: tenant, match: { tenant: '*' }, key_by: tenant, limit: 8/h using sliding_window_log }
  - { id: all, key_by: global, limit: 12/h using fixed_window }";

fn query<'q, 'f>(facts: &'q Facts<'f>, action: QueryAction) -> DecisionQuery<'q, 'f> {
    DecisionQuery { facts, action, inline_limit: None }
}

fn charge<'q, 'f>(facts: &'q Facts<'f>, cost: u64) -> DecisionQuery<'q, 'f> {
    query(facts, QueryAction::Charge(cost))
}

fn decide_batch(node: &TestNode, queries: &[DecisionQuery<'_, '_>]) -> Vec<Decision> {
    poll_ready(node.limiter.decide_batch(queries)).expect("the batch has no inline limit")
}

fn all_summaries(decisions: &[Decision]) -> Vec<Vec<String>> {
    decisions.iter().map(reading_summary).collect()
}

fn node(source: &str) -> TestNode {
    single_node(source, &clock())
}

#[test]
fn refused_query_charges_no_other_query() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    node.store.take_recorded_calls();
    let first = decide_batch(&node, &[charge(&ann, 1), charge(&bob, 5)]);
    assert_eq!(
        node.store.take_recorded_calls(),
        [(Op::Charge, 3)],
        "the shared counter is charged once"
    );
    assert_eq!(
        all_summaries(&first),
        [["user allow 4", "all allow 6"], ["user allow 0", "all allow 6"]]
    );
    let second = decide_batch(&node, &[charge(&ann, 1), charge(&bob, 1)]);
    assert_eq!(
        all_summaries(&second),
        [["user allow 4", "all allow 6"], ["user deny 0", "all allow 6"]]
    );
    assert_eq!(second.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 4", "all allow 6"]]
    );
}

#[test]
fn queries_on_one_counter_are_summed() {
    let node = node(RULES);
    let ann = facts(&[("user", "ann")]);
    let over = decide_batch(&node, &[charge(&ann, 3), charge(&ann, 3)]);
    assert!(
        over.iter().all(|decision| !decision.is_allowed()),
        "a cost of 6 exceeds the limit of 5"
    );
    let exact = decide_batch(&node, &[charge(&ann, 3), charge(&ann, 2)]);
    assert_eq!(all_summaries(&exact), [["user allow 0", "all allow 7"]; 2]);
    // Each decision refunds only its own cost.
    let [three, two] = <[Decision; 2]>::try_from(exact).unwrap();
    poll_ready(node.limiter.refund_decision(two));
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 2", "all allow 9"]]
    );
    poll_ready(node.limiter.refund_decisions(vec![three]));
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 5", "all allow 12"]]
    );
}

#[test]
fn zero_cost_query_refused_only_in_debt() {
    let node =
        node("rules: [{ id: r, charge: always, key_by: ip, limit: 2/h using fixed_window }]");
    let no_facts = Facts::new();
    let spend = |cost: u64| all_summaries(&decide_batch(&node, &[charge(&no_facts, cost)]));
    assert_eq!(spend(2), [["r allow 0"]]);
    assert_eq!(spend(0), [["r allow 0"]], "a full counter is not in debt");
    assert_eq!(spend(1), [["r deny 0"]], "refused, but `charge: always` charges it");
    node.store.take_recorded_calls();
    assert_eq!(spend(0), [["r deny 0"]]);
    assert_eq!(node.store.take_recorded_calls(), [(Op::Peek, 1)]);
}

#[test]
fn zero_cost_query_can_refuse_batch() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    poll_ready(node.limiter.force(&ann, None, 6));
    let refused = decide_batch(&node, &[charge(&ann, 0), charge(&bob, 1)]);
    assert_eq!(refused.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&bob, 0)])),
        [["user allow 5", "all allow 6"]]
    );
}

#[test]
fn refund_applies_only_to_admitted_batch() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    decide_batch(&node, &[charge(&ann, 4), charge(&bob, 5)]);
    let refund = query(&ann, QueryAction::Refund(2));
    let refused = decide_batch(&node, &[refund, charge(&bob, 1)]);
    assert_eq!(
        all_summaries(&refused),
        [["user allow 1", "all allow 3"], ["user deny 0", "all allow 3"]]
    );
    let refunded = decide_batch(&node, &[refund, query(&ann, QueryAction::Refund(9))]);
    assert_eq!(
        all_summaries(&refunded),
        [["user allow 5", "all allow 12"]; 2],
        "no more than was used"
    );
}

#[test]
fn deny_rule_refuses_batch_uncharged() {
    let source = format!(
        "{RULES}\n  - {{ id: no, match: {{ user: bad }}, key_by: ip, limit: {{ requests: deny }} }}"
    );
    let node = node(&source);
    let (ann, bad) = (facts(&[("user", "ann")]), facts(&[("user", "bad")]));
    let refused = decide_batch(&node, &[charge(&ann, 1), charge(&bad, 1)]);
    assert_eq!(refused.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 5", "all allow 12"]]
    );
}

#[test]
fn queue_rule_refuses_batch_with_exact_wait() {
    let queue = "{ requests: 10, window: 1s, burst: 5, algorithm: leaky_bucket, queue: true }";
    let (limiter, clock) = limiter(&format!("rules: [{{ id: q, key_by: ip, limit: {queue} }}]"));
    let no_facts = Facts::new();
    let call = || poll_ready(limiter.decide_batch(&[charge(&no_facts, 1)])).unwrap().remove(0);
    assert!(call().is_allowed());
    for _ in 0..3 {
        let refused = call();
        let (_, reading) = refused.tightest().unwrap();
        assert_eq!(
            reading.retry(),
            Retry::After(Micros::from_millis(100)),
            "refusals are not queued"
        );
        assert_eq!((refused.is_allowed(), refused.delay()), (false, Micros::ZERO));
    }
    clock.advance(Micros::from_millis(100));
    assert!(call().is_allowed());
    // A caller that can delay the request gets the next place in the queue.
    assert_eq!(poll_ready(limiter.decide(&no_facts, 1)).delay(), Micros::from_millis(100));
}

#[test]
fn inline_limit_counts_by_facts_and_window() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    let with_limit = |facts, requests, window| {
        let limit = Some(InlineLimit { requests, window: Micros::from_secs(window) });
        let query = DecisionQuery { facts, action: QueryAction::Charge(1), inline_limit: limit };
        poll_ready(node.limiter.decide_batch(&[query])).unwrap().remove(0)
    };
    assert_eq!(reading_summary(&with_limit(&ann, 2, 60)), ["override allow 1"]);
    assert_eq!(
        reading_summary(&with_limit(&ann, 9, 60)),
        ["override allow 7"],
        "another limit, the same counter"
    );
    assert_eq!(reading_summary(&with_limit(&ann, 2, 60)), ["override deny 0"]);
    assert_eq!(
        reading_summary(&with_limit(&ann, 2, 3_600)),
        ["override allow 1"],
        "another window, another counter"
    );
    assert_eq!(
        reading_summary(&with_limit(&ann, 2, 60)),
        ["override deny 0"],
        "the other window did not change this counter"
    );
    assert_eq!(reading_summary(&with_limit(&bob, 2, 60)), ["override allow 1"], "another user");
    assert_eq!(reading_summary(&with_limit(&bob, 0, 60)), ["override deny -"], "a limit of 0");
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 5", "all allow 12"]]
    );
    poll_ready(node.limiter.refund_decisions(vec![with_limit(&bob, 5, 3_600)]));
    assert_eq!(
        reading_summary(&with_limit(&bob, 5, 3_600)),
        ["override allow 4"],
        "the earlier charge was refunded"
    );
}

#[test]
fn duplicate_inline_limits_use_strictest_and_sum() {
    let node = node(RULES);
    let ann = facts(&[("user", "ann")]);
    let with_limit = |requests, cost| DecisionQuery {
        inline_limit: Some(InlineLimit { requests, window: Micros::from_secs(60) }),
        ..charge(&ann, cost)
    };
    assert_eq!(
        all_summaries(&decide_batch(&node, &[with_limit(9, 2), with_limit(3, 2)])),
        [["override deny 3"]; 2]
    );
    assert_eq!(
        all_summaries(&decide_batch(&node, &[with_limit(9, 2), with_limit(3, 1)])),
        [["override allow 0"]; 2]
    );
}

#[test]
fn outage_makes_inline_limit_fail() {
    let node = node(
        "facts: [user]
rules:
           - { id: open, match: { user: ann }, key_by: user, limit: 5/h, on_fail: allow }
           - { id: shut, match: { user: bob }, key_by: user, limit: 5/h, on_fail: deny }
           - { id: mine, match: { user: cat }, key_by: user, limit: 2/h, on_fail: local }",
    );
    let [ann, bob, cat] = [[("user", "ann")], [("user", "bob")], [("user", "cat")]]
        .map(|pair| pair.into_iter().collect::<Facts<'_>>());
    let limit = Some(InlineLimit { requests: 5, window: Micros::from_secs(60) });
    let inline = DecisionQuery { inline_limit: limit, ..charge(&ann, 1) };
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 1), charge(&bob, 1), charge(&cat, 1)])),
        [["open allow 5"], ["shut deny 0"], ["mine allow 2"]],
        "the batch is refused, so the share is not charged"
    );
    let answer = poll_ready(node.limiter.decide_batch(&[charge(&cat, 1), inline]));
    assert_eq!(answer.err(), Some(StoreUnavailableError));
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&cat, 2)])),
        [["mine allow 0"]],
        "the share's earlier charge was refunded"
    );
    node.store.set_fault(StoreFault::PartUnreachable(&["override"]));
    assert!(poll_ready(node.limiter.decide_batch(&[charge(&ann, 1), inline])).is_err());
    node.store.set_fault(StoreFault::None);
    assert_eq!(all_summaries(&decide_batch(&node, &[charge(&ann, 0)])), [["open allow 5"]]);
}

#[test]
fn cached_refusal_leaves_other_readings_unknown() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    decide_batch(&node, &[charge(&bob, 5)]);
    node.store.set_fault(StoreFault::DenyCached);
    let refused = decide_batch(&node, &[charge(&ann, 1), charge(&bob, 1)]);
    assert_eq!(
        all_summaries(&refused),
        [["user allow -", "all allow -"], ["user deny 0", "all allow -"]]
    );
}

/// Batches of queries, each query as (user, tenant, cost).
fn batches() -> impl Strategy<Value = Vec<Vec<(u8, u8, u64)>>> {
    let one = (0_u8..3, 0_u8..3, 0_u64..4);
    prop::collection::vec(prop::collection::vec(one, 1..5), 1..8)
}

/// Checks batches against a model: a batch is admitted if every counter has room for the sum of the
/// costs charged to it. Then each counter loses that sum, and otherwise nothing.
#[test]
fn batch_is_admitted_iff_all_counters_fit() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    check_property("together", cases() / 10, &batches(), |calls| {
        let node = node(RULES);
        let (mut users, mut tenants, mut all) = ([5_u64; 3], [8_u64; 3], 12_u64);
        for call in calls {
            let pairs = |(user, tenant, _): &(u8, u8, u64)| -> Facts<'_> {
                [("user", NAMES[*user as usize]), ("tenant", NAMES[*tenant as usize])]
                    .into_iter()
                    .collect()
            };
            let facts: Vec<Facts<'_>> = call.iter().map(pairs).collect();
            let queries: Vec<DecisionQuery<'_, '_>> =
                facts.iter().zip(&call).map(|(facts, (_, _, cost))| charge(facts, *cost)).collect();
            let (mut by_user, mut by_tenant, mut sum) = ([0; 3], [0; 3], 0);
            for (user, tenant, cost) in &call {
                by_user[*user as usize] += cost;
                by_tenant[*tenant as usize] += cost;
                sum += cost;
            }
            let fits = |left: &[u64], cost: &[u64]| left.iter().zip(cost).all(|(l, c)| c <= l);
            let expected = fits(&users, &by_user) && fits(&tenants, &by_tenant) && sum <= all;
            let decisions = decide_batch(&node, &queries);
            prop_assert_eq!(decisions.iter().all(Decision::is_allowed), expected);
            if expected {
                (0..3).for_each(|i| users[i] -= by_user[i]);
                (0..3).for_each(|i| tenants[i] -= by_tenant[i]);
                all -= sum;
            }
            for (decision, (user, tenant, _)) in decisions.iter().zip(&call) {
                let left: Vec<u64> = decision
                    .readings()
                    .map(|(_, reading)| reading.numbers.unwrap().remaining)
                    .collect();
                prop_assert_eq!(left, [users[*user as usize], tenants[*tenant as usize], all]);
            }
        }
        Ok(())
    });
}

#[test]
fn single_query_equals_plain_decision() {
    let (one, two) = (node(RULES), node(RULES));
    let ann = facts(&[("user", "ann"), ("tenant", "x")]);
    for _ in 0..8 {
        let decided = reading_summary(&poll_ready(one.limiter.decide(&ann, 1)));
        assert_eq!(all_summaries(&decide_batch(&two, &[charge(&ann, 1)])), [decided]);
    }
}

#[test]
fn lone_refund_query_is_applied() {
    let (node, ann) = (node(RULES), facts(&[("user", "ann")]));
    decide_batch(&node, &[charge(&ann, 3)]);
    let refunded = decide_batch(&node, &[query(&ann, QueryAction::Refund(2))]);
    assert_eq!(all_summaries(&refunded), [["user allow 4", "all allow 11"]]);
}

#[test]
fn refund_beside_admitted_charge_is_applied() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    decide_batch(&node, &[charge(&bob, 3)]);
    decide_batch(&node, &[charge(&ann, 1), query(&bob, QueryAction::Refund(2))]);
    let left = poll_ready(node.limiter.peek(&bob, None, 1));
    assert_eq!(reading_summary(&left), ["user allow 4", "all allow 10"]);
}

#[test]
fn decisions_of_batch_are_refunded_separately() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    let mut decisions = decide_batch(&node, &[charge(&ann, 1), charge(&bob, 2)]);
    poll_ready(node.limiter.refund_decision(decisions.remove(1)));
    for (user, expected) in
        [(&ann, ["user allow 4", "all allow 11"]), (&bob, ["user allow 5", "all allow 11"])]
    {
        assert_eq!(reading_summary(&poll_ready(node.limiter.peek(user, None, 1))), expected);
    }
}

/// The limit belongs to no rule, so no rule's `on_fail` applies to it.
#[test]
fn outage_fails_inline_limit_beside_local_rules() {
    let node = node(&format!("on_fail: local\n{RULES}"));
    node.store.set_fault(StoreFault::Unreachable);
    let ann = facts(&[("user", "ann")]);
    let inline_limit = Some(InlineLimit { requests: 3, window: Micros::from_secs(60) });
    let limited = DecisionQuery { inline_limit, ..charge(&ann, 1) };
    assert!(poll_ready(node.limiter.decide_batch(&[limited])).is_err());
}
