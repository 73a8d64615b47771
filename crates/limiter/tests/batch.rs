//! Several questions in one call: all of them are charged or none, whatever they share.

#![expect(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::faulty_store::{StoreFault, TestNode, single_node};
use common::{clock, facts, limiter, poll_ready, reading_summary};
use proptest::prelude::*;
use tidegate_core::decision::Retry;
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_limiter::{Decision, DecisionQuery, QueryAction, StoreUnavailableError};
use tidegate_rules::{Facts, InlineLimit};
use tidegate_testkit::property::{cases, check_property};

const RULES: &str = "facts: [user, tenant]
rules:
  - { id: user, match: { user: '*' }, key_by: user, limit: 5/h using fixed_window }
  - { id: tenant, match: { tenant: '*' }, key_by: tenant, limit: 8/h using sliding_window_log }
  - { id: all, key_by: global, limit: 12/h using fixed_window }";

fn query<'q, 'f>(facts: &'q Facts<'f>, asked: QueryAction) -> DecisionQuery<'q, 'f> {
    DecisionQuery { facts, action: asked, inline_limit: None }
}

fn charge<'q, 'f>(facts: &'q Facts<'f>, cost: u64) -> DecisionQuery<'q, 'f> {
    query(facts, QueryAction::Charge(cost))
}

fn decide_batch(node: &TestNode, questions: &[DecisionQuery<'_, '_>]) -> Vec<Decision> {
    poll_ready(node.limiter.decide_batch(questions)).expect("no limit was brought")
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
        "the shared counter is in it once"
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
    assert!(over.iter().all(|decision| !decision.is_allowed()), "five are not six");
    let exact = decide_batch(&node, &[charge(&ann, 3), charge(&ann, 2)]);
    assert_eq!(all_summaries(&exact), [["user allow 0", "all allow 7"]; 2]);
    // Each has its own part, and gives that back.
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
    let nobody = Facts::new();
    let look = |more: u64| all_summaries(&decide_batch(&node, &[charge(&nobody, more)]));
    assert_eq!(look(2), [["r allow 0"]]);
    assert_eq!(look(0), [["r allow 0"]], "as many as the limit is not over it");
    assert_eq!(look(1), [["r deny 0"]], "and is charged all the same");
    node.store.take_recorded_calls();
    assert_eq!(look(0), [["r deny 0"]]);
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
    let back = query(&ann, QueryAction::Refund(2));
    let refused = decide_batch(&node, &[back, charge(&bob, 1)]);
    assert_eq!(
        all_summaries(&refused),
        [["user allow 1", "all allow 3"], ["user deny 0", "all allow 3"]]
    );
    let given = decide_batch(&node, &[back, query(&ann, QueryAction::Refund(9))]);
    assert_eq!(
        all_summaries(&given),
        [["user allow 5", "all allow 12"]; 2],
        "no more than there is"
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
    let nobody = Facts::new();
    let call = || poll_ready(limiter.decide_batch(&[charge(&nobody, 1)])).unwrap().remove(0);
    assert!(call().is_allowed());
    for _ in 0..3 {
        let refused = call();
        let (_, reading) = refused.tightest().unwrap();
        assert_eq!(reading.retry(), Retry::After(Micros::from_millis(100)), "and no longer");
        assert_eq!((refused.is_allowed(), refused.delay()), (false, Micros::ZERO));
    }
    clock.advance(Micros::from_millis(100));
    assert!(call().is_allowed());
    // Who can wait is queued behind.
    assert_eq!(poll_ready(limiter.decide(&nobody, 1)).delay(), Micros::from_millis(100));
}

#[test]
fn inline_limit_counts_by_facts_and_window() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    let bring = |facts, requests, window| {
        let limit = Some(InlineLimit { requests, window: Micros::from_secs(window) });
        let question = DecisionQuery { facts, action: QueryAction::Charge(1), inline_limit: limit };
        poll_ready(node.limiter.decide_batch(&[question])).unwrap().remove(0)
    };
    assert_eq!(reading_summary(&bring(&ann, 2, 60)), ["override allow 1"]);
    assert_eq!(
        reading_summary(&bring(&ann, 9, 60)),
        ["override allow 7"],
        "another number, the same counter"
    );
    assert_eq!(reading_summary(&bring(&ann, 2, 60)), ["override deny 0"]);
    assert_eq!(reading_summary(&bring(&ann, 2, 3_600)), ["override allow 1"], "another window");
    assert_eq!(
        reading_summary(&bring(&ann, 2, 60)),
        ["override deny 0"],
        "has a counter of its own"
    );
    assert_eq!(reading_summary(&bring(&bob, 2, 60)), ["override allow 1"], "somebody else");
    assert_eq!(reading_summary(&bring(&bob, 0, 60)), ["override deny -"], "none at all");
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 0)])),
        [["user allow 5", "all allow 12"]]
    );
    poll_ready(node.limiter.refund_decisions(vec![bring(&bob, 5, 3_600)]));
    assert_eq!(
        reading_summary(&bring(&bob, 5, 3_600)),
        ["override allow 4"],
        "what was given back is back"
    );
}

#[test]
fn duplicate_inline_limits_use_strictest_and_sum() {
    let node = node(RULES);
    let ann = facts(&[("user", "ann")]);
    let bring = |requests, cost| DecisionQuery {
        inline_limit: Some(InlineLimit { requests, window: Micros::from_secs(60) }),
        ..charge(&ann, cost)
    };
    assert_eq!(
        all_summaries(&decide_batch(&node, &[bring(9, 2), bring(3, 2)])),
        [["override deny 3"]; 2]
    );
    assert_eq!(
        all_summaries(&decide_batch(&node, &[bring(9, 2), bring(3, 1)])),
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
    let brought = DecisionQuery { inline_limit: limit, ..charge(&ann, 1) };
    node.store.set_fault(StoreFault::Unreachable);
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&ann, 1), charge(&bob, 1), charge(&cat, 1)])),
        [["open allow 5"], ["shut deny 0"], ["mine allow 2"]],
        "refused, so that the share was not charged either"
    );
    let answer = poll_ready(node.limiter.decide_batch(&[charge(&cat, 1), brought]));
    assert_eq!(answer.err(), Some(StoreUnavailableError));
    assert_eq!(
        all_summaries(&decide_batch(&node, &[charge(&cat, 2)])),
        [["mine allow 0"]],
        "what the share had admitted was given back"
    );
    node.store.set_fault(StoreFault::PartUnreachable(&["override"]));
    assert!(poll_ready(node.limiter.decide_batch(&[charge(&ann, 1), brought])).is_err());
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

/// What a question is made of: whose it is (user and tenant), and what it costs.
fn questions() -> impl Strategy<Value = Vec<Vec<(u8, u8, u64)>>> {
    let one = (0_u8..3, 0_u8..3, 0_u64..4);
    prop::collection::vec(prop::collection::vec(one, 1..5), 1..8)
}

/// The law, told by one call after the other: a call passes if every counter holds the sum of what is asked
/// of it; then that is what is missing from each, and otherwise nothing is.
#[test]
fn batch_is_admitted_iff_all_counters_fit() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    check_property("together", cases() / 10, &questions(), |calls| {
        let node = node(RULES);
        let (mut users, mut tenants, mut all) = ([5_u64; 3], [8_u64; 3], 12_u64);
        for call in calls {
            let pairs = |(user, tenant, _): &(u8, u8, u64)| -> Facts<'_> {
                [("user", NAMES[*user as usize]), ("tenant", NAMES[*tenant as usize])]
                    .into_iter()
                    .collect()
            };
            let facts: Vec<Facts<'_>> = call.iter().map(pairs).collect();
            let asked: Vec<DecisionQuery<'_, '_>> =
                facts.iter().zip(&call).map(|(facts, (_, _, cost))| charge(facts, *cost)).collect();
            let (mut by_user, mut by_tenant, mut sum) = ([0; 3], [0; 3], 0);
            for (user, tenant, cost) in &call {
                by_user[*user as usize] += cost;
                by_tenant[*tenant as usize] += cost;
                sum += cost;
            }
            let fits = |left: &[u64], asked: &[u64]| left.iter().zip(asked).all(|(l, a)| a <= l);
            let expected = fits(&users, &by_user) && fits(&tenants, &by_tenant) && sum <= all;
            let decisions = decide_batch(&node, &asked);
            prop_assert_eq!(decisions.iter().all(Decision::is_allowed), expected);
            if expected {
                (0..3).for_each(|i| users[i] -= by_user[i]);
                (0..3).for_each(|i| tenants[i] -= by_tenant[i]);
                all -= sum;
            }
            for (decision, (user, tenant, _)) in decisions.iter().zip(&call) {
                let left: Vec<u64> =
                    decision.readings().map(|(_, told)| told.numbers.unwrap().remaining).collect();
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
