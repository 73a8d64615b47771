//! Several questions in one call: all of them are charged or none, whatever they share.

#![expect(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::flaky::{Fault, Node, alone};
use common::{clock, facts, limiter, ready, told};
use proptest::prelude::*;
use tidegate_core::decision::Retry;
use tidegate_core::store::Op;
use tidegate_core::time::Micros;
use tidegate_engine::{Asked, Decision, Question, Unanswered};
use tidegate_rules::{BroughtLimit, Facts};
use tidegate_testkit::property::{cases, holds};

const RULES: &str = "facts: [user, tenant]
rules:
  - { id: user, match: { user: '*' }, key_by: user, limit: 5/h using fixed_window }
  - { id: tenant, match: { tenant: '*' }, key_by: tenant, limit: 8/h using sliding_window_log }
  - { id: all, key_by: global, limit: 12/h using fixed_window }";

fn ask<'q, 'f>(facts: &'q Facts<'f>, asked: Asked) -> Question<'q, 'f> {
    Question { facts, asked, limit: None }
}

fn charge<'q, 'f>(facts: &'q Facts<'f>, cost: u64) -> Question<'q, 'f> {
    ask(facts, Asked::Charge(cost))
}

fn together(node: &Node, questions: &[Question<'_, '_>]) -> Vec<Decision> {
    ready(node.limiter.decide_together(questions)).expect("no limit was brought")
}

fn all_told(decisions: &[Decision]) -> Vec<Vec<String>> {
    decisions.iter().map(told).collect()
}

fn node(source: &str) -> Node {
    alone(source, &clock())
}

#[test]
fn a_call_is_one_batch_and_a_refusal_anywhere_charges_nothing_anywhere() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    node.store.asked();
    let first = together(&node, &[charge(&ann, 1), charge(&bob, 5)]);
    assert_eq!(node.store.asked(), [(Op::Charge, 3)], "the shared counter is in it once");
    assert_eq!(
        all_told(&first),
        [["user allow 4", "all allow 6"], ["user allow 0", "all allow 6"]]
    );
    let second = together(&node, &[charge(&ann, 1), charge(&bob, 1)]);
    assert_eq!(
        all_told(&second),
        [["user allow 4", "all allow 6"], ["user deny 0", "all allow 6"]]
    );
    assert_eq!(second.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["user allow 4", "all allow 6"]]);
}

#[test]
fn what_two_questions_ask_of_one_counter_is_added_up() {
    let node = node(RULES);
    let ann = facts(&[("user", "ann")]);
    let over = together(&node, &[charge(&ann, 3), charge(&ann, 3)]);
    assert!(over.iter().all(|decision| !decision.is_allowed()), "five are not six");
    let exact = together(&node, &[charge(&ann, 3), charge(&ann, 2)]);
    assert_eq!(all_told(&exact), [["user allow 0", "all allow 7"]; 2]);
    // Each has its own part, and gives that back.
    let [three, two] = <[Decision; 2]>::try_from(exact).unwrap();
    ready(node.limiter.give_back(two));
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["user allow 2", "all allow 9"]]);
    ready(node.limiter.give_back_all(vec![three]));
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["user allow 5", "all allow 12"]]);
}

#[test]
fn a_look_passes_at_the_limit_and_not_in_debt_and_changes_nothing() {
    let node =
        node("rules: [{ id: r, charge: always, key_by: ip, limit: 2/h using fixed_window }]");
    let nobody = Facts::new();
    let look = |more: u64| all_told(&together(&node, &[charge(&nobody, more)]));
    assert_eq!(look(2), [["r allow 0"]]);
    assert_eq!(look(0), [["r allow 0"]], "as many as the limit is not over it");
    assert_eq!(look(1), [["r deny 0"]], "and is charged all the same");
    node.store.asked();
    assert_eq!(look(0), [["r deny 0"]]);
    assert_eq!(node.store.asked(), [(Op::Peek, 1)]);
}

#[test]
fn a_look_beside_a_charge_decides_with_it_and_costs_nothing() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    ready(node.limiter.force(&ann, None, 6));
    let refused = together(&node, &[charge(&ann, 0), charge(&bob, 1)]);
    assert_eq!(refused.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(all_told(&together(&node, &[charge(&bob, 0)])), [["user allow 5", "all allow 6"]]);
}

#[test]
fn what_is_given_back_is_given_back_only_with_the_rest() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    together(&node, &[charge(&ann, 4), charge(&bob, 5)]);
    let back = ask(&ann, Asked::GiveBack(2));
    let refused = together(&node, &[back, charge(&bob, 1)]);
    assert_eq!(
        all_told(&refused),
        [["user allow 1", "all allow 3"], ["user deny 0", "all allow 3"]]
    );
    let given = together(&node, &[back, ask(&ann, Asked::GiveBack(9))]);
    assert_eq!(all_told(&given), [["user allow 5", "all allow 12"]; 2], "no more than there is");
}

#[test]
fn a_rule_that_refuses_everybody_refuses_the_call_uncharged() {
    let source = format!(
        "{RULES}\n  - {{ id: no, match: {{ user: bad }}, key_by: ip, limit: {{ requests: deny }} }}"
    );
    let node = node(&source);
    let (ann, bad) = (facts(&[("user", "ann")]), facts(&[("user", "bad")]));
    let refused = together(&node, &[charge(&ann, 1), charge(&bad, 1)]);
    assert_eq!(refused.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["user allow 5", "all allow 12"]]);
}

#[test]
fn a_queue_lets_pass_at_once_or_refuses_uncharged_for_as_long_as_the_wait_would_be() {
    let queue = "{ requests: 10, window: 1s, burst: 5, algorithm: leaky_bucket, queue: true }";
    let (limiter, clock) = limiter(&format!("rules: [{{ id: q, key_by: ip, limit: {queue} }}]"));
    let nobody = Facts::new();
    let call = || ready(limiter.decide_together(&[charge(&nobody, 1)])).unwrap().remove(0);
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
    assert_eq!(ready(limiter.decide(&nobody, 1)).delay(), Micros::from_millis(100));
}

#[test]
fn a_limit_that_is_brought_counts_instead_of_the_rules_by_facts_and_window() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    let bring = |facts, requests, window| {
        let limit = Some(BroughtLimit { requests, window: Micros::from_secs(window) });
        let question = Question { facts, asked: Asked::Charge(1), limit };
        ready(node.limiter.decide_together(&[question])).unwrap().remove(0)
    };
    assert_eq!(told(&bring(&ann, 2, 60)), ["override allow 1"]);
    assert_eq!(told(&bring(&ann, 9, 60)), ["override allow 7"], "another number, the same counter");
    assert_eq!(told(&bring(&ann, 2, 60)), ["override deny 0"]);
    assert_eq!(told(&bring(&ann, 2, 3_600)), ["override allow 1"], "another window");
    assert_eq!(told(&bring(&ann, 2, 60)), ["override deny 0"], "has a counter of its own");
    assert_eq!(told(&bring(&bob, 2, 60)), ["override allow 1"], "somebody else");
    assert_eq!(told(&bring(&bob, 0, 60)), ["override deny -"], "none at all");
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["user allow 5", "all allow 12"]]);
    ready(node.limiter.give_back_all(vec![bring(&bob, 5, 3_600)]));
    assert_eq!(told(&bring(&bob, 5, 3_600)), ["override allow 4"], "what was given back is back");
}

#[test]
fn limits_that_are_brought_twice_for_one_counter_are_the_strictest_and_added_up() {
    let node = node(RULES);
    let ann = facts(&[("user", "ann")]);
    let bring = |requests, cost| Question {
        limit: Some(BroughtLimit { requests, window: Micros::from_secs(60) }),
        ..charge(&ann, cost)
    };
    assert_eq!(all_told(&together(&node, &[bring(9, 2), bring(3, 2)])), [["override deny 3"]; 2]);
    assert_eq!(all_told(&together(&node, &[bring(9, 2), bring(3, 1)])), [["override allow 0"]; 2]);
}

#[test]
fn while_the_store_is_gone_rules_speak_and_a_limit_that_was_brought_has_nobody_to() {
    let node = node(
        "facts: [user]
rules:
           - { id: open, match: { user: ann }, key_by: user, limit: 5/h, on_fail: allow }
           - { id: shut, match: { user: bob }, key_by: user, limit: 5/h, on_fail: deny }
           - { id: mine, match: { user: cat }, key_by: user, limit: 2/h, on_fail: local }",
    );
    let [ann, bob, cat] = [[("user", "ann")], [("user", "bob")], [("user", "cat")]]
        .map(|pair| pair.into_iter().collect::<Facts<'_>>());
    let limit = Some(BroughtLimit { requests: 5, window: Micros::from_secs(60) });
    let brought = Question { limit, ..charge(&ann, 1) };
    node.store.fault(Fault::Gone);
    assert_eq!(
        all_told(&together(&node, &[charge(&ann, 1), charge(&bob, 1), charge(&cat, 1)])),
        [["open allow 5"], ["shut deny 0"], ["mine allow 2"]],
        "refused, so that the share was not charged either"
    );
    let answer = ready(node.limiter.decide_together(&[charge(&cat, 1), brought]));
    assert_eq!(answer.err(), Some(Unanswered));
    assert_eq!(
        all_told(&together(&node, &[charge(&cat, 2)])),
        [["mine allow 0"]],
        "what the share had admitted was given back"
    );
    node.store.fault(Fault::Without(&["override"]));
    assert!(ready(node.limiter.decide_together(&[charge(&ann, 1), brought])).is_err());
    node.store.fault(Fault::None);
    assert_eq!(all_told(&together(&node, &[charge(&ann, 0)])), [["open allow 5"]]);
}

#[test]
fn refusals_that_are_remembered_are_told_and_the_rest_is_not_known() {
    let node = node(RULES);
    let (ann, bob) = (facts(&[("user", "ann")]), facts(&[("user", "bob")]));
    together(&node, &[charge(&bob, 5)]);
    node.store.fault(Fault::Remembers);
    let refused = together(&node, &[charge(&ann, 1), charge(&bob, 1)]);
    assert_eq!(
        all_told(&refused),
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
fn a_call_passes_if_every_counter_holds_the_sum_and_charges_just_that_or_nothing() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    holds("together", cases() / 10, &questions(), |calls| {
        let node = node(RULES);
        let (mut users, mut tenants, mut all) = ([5_u64; 3], [8_u64; 3], 12_u64);
        for call in calls {
            let pairs = |(user, tenant, _): &(u8, u8, u64)| -> Facts<'_> {
                [("user", NAMES[*user as usize]), ("tenant", NAMES[*tenant as usize])]
                    .into_iter()
                    .collect()
            };
            let facts: Vec<Facts<'_>> = call.iter().map(pairs).collect();
            let asked: Vec<Question<'_, '_>> =
                facts.iter().zip(&call).map(|(facts, (_, _, cost))| charge(facts, *cost)).collect();
            let (mut by_user, mut by_tenant, mut sum) = ([0; 3], [0; 3], 0);
            for (user, tenant, cost) in &call {
                by_user[*user as usize] += cost;
                by_tenant[*tenant as usize] += cost;
                sum += cost;
            }
            let fits = |left: &[u64], asked: &[u64]| left.iter().zip(asked).all(|(l, a)| a <= l);
            let expected = fits(&users, &by_user) && fits(&tenants, &by_tenant) && sum <= all;
            let decisions = together(&node, &asked);
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
fn one_question_is_told_what_a_decision_is_told() {
    let (one, two) = (node(RULES), node(RULES));
    let ann = facts(&[("user", "ann"), ("tenant", "x")]);
    for _ in 0..8 {
        let decided = told(&ready(one.limiter.decide(&ann, 1)));
        assert_eq!(all_told(&together(&two, &[charge(&ann, 1)])), [decided]);
    }
}
