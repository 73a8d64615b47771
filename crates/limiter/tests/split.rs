//! Split rules: the parts together admit what the limit admits, a request is charged on all its
//! rules or on none, and everything but a charge addresses all parts.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::{Arc, Mutex};

use common::node::{SharingNode, sharing_nodes};
use common::{clock, facts, poll_ready, reading_summary};
use proptest::prelude::*;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Algorithm;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_core::time::{Clock as _, ManualClock, Micros};
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, fleet};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{
    Decision, DecisionEvent, DecisionObserver, DecisionQuery, Limiter, QueryAction, RuleReading,
};
use tidegate_rules::Rule;
use tidegate_testkit::admission_bound::{TimedAdmission, check_bound};
use tidegate_testkit::property::{cases, check_property};

const ANN: &[(&str, &str)] = &[("user_id", "ann"), ("ip", "203.0.113.7")];

fn split_rule(limit: u64, algorithm: &str, parts: u32) -> String {
    format!("{{ id: r, key_by: user_id, limit: {limit}/h using {algorithm}, split: {parts} }}")
}

fn document(rules: &[&str]) -> String {
    format!("rules: [{}]", rules.join(", "))
}

fn node(rules: &[&str]) -> (SharingNode, ManualClock) {
    let clock = clock();
    (sharing_nodes(&document(rules), 1, &clock).remove(0), clock)
}

/// What is used of each counter of a rule: one for each part.
fn used<S: Store, L: Store>(limiter: &Limiter<S, L>, rule: u32) -> Vec<u64> {
    let rules = limiter.rules();
    let whole = rules[rule].key(rules[rule].fingerprint(&facts(ANN), &rules));
    let parts = rules[rule].split_parts();
    let counters: Vec<(_, &Rule)> = match parts.is_empty() {
        true => vec![(whole, &rules[rule])],
        false => parts.map(|at| (rules[at].split_part().unwrap().key(whole), &rules[at])).collect(),
    };
    let charge = |(key, rule): &(_, &Rule)| {
        let mut reading = [Reading::default()];
        let charge = [Charge::plain(*key, rule.limit().policy().unwrap(), 1)];
        poll_ready(limiter.store().apply(Op::Peek, &charge, &mut reading)).unwrap();
        reading[0].limit - reading[0].remaining
    };
    counters.iter().map(charge).collect()
}

fn decide(node: &SharingNode, cost: u32) -> Decision {
    node.decide(&facts(ANN), cost)
}

fn reading(decision: &Decision, rule: usize) -> Reading {
    decision.readings().nth(rule).unwrap().1.numbers.unwrap()
}

/// The part that a decision charged.
fn charged_part(before: &[u64], after: &[u64]) -> usize {
    let changed: Vec<usize> = (0..before.len()).filter(|i| before[*i] != after[*i]).collect();
    assert_eq!(changed.len(), 1, "{before:?} {after:?}");
    changed[0]
}

#[test]
fn split_rule_admits_exactly_its_limit() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let (node, _) = node(&[&split_rule(103, algorithm, 8)]);
        let admitted = (0..2_000).filter(|_| decide(&node, 1).is_allowed()).count();
        assert_eq!(admitted, 103, "{algorithm}");
        assert_eq!(used(&node.limiter, 0), [13, 13, 13, 13, 13, 13, 13, 12], "{algorithm}");
    }
}

#[test]
fn memory_store_counts_split_rule_in_one_counter() {
    let (limiter, _) = common::limiter(&document(&[&split_rule(40, "fixed_window", 4)]));
    let decision = poll_ready(limiter.decide(&facts(ANN), 25));
    assert_eq!(reading_summary(&decision), ["r allow 15"], "more than a part admits");
    let why = poll_ready(limiter.explain(&facts(ANN), 1)).rules.remove(0);
    assert_eq!(why.consistency.unwrap().mode, "exact");
}

/// A request sees at most two parts.
#[test]
fn answer_shows_seen_parts() {
    let (node, _) = node(&[&split_rule(40, "fixed_window", 2)]);
    let first = reading(&decide(&node, 3), 0);
    assert_eq!((first.limit, first.remaining), (40, 17), "one part");
    node.store.take_recorded_calls();
    let mut left = 37;
    let refused = loop {
        let decision = decide(&node, 9);
        let [used, other] = used(&node.limiter, 0)[..] else { panic!("two parts") };
        match decision.is_allowed() {
            true => left -= 9,
            false => break (reading(&decision, 0), used, other),
        }
    };
    let (refused, used, other) = refused;
    assert_eq!((refused.limit, refused.remaining), (40, left), "both parts");
    assert!(used + 9 > 20 && other + 9 > 20, "{used} {other}");
    assert!(matches!(refused.retry, Retry::After(_)));
    // A cost that no part ever admits.
    assert_eq!(reading(&decide(&node, 21), 0).retry, Retry::Never);
}

/// The wait is that of the part that admits the request first.
#[test]
fn retry_is_when_first_seen_part_admits() {
    let (node, clock) = node(&["{ id: r, key_by: user_id, limit: 20/s, split: 2 }"]);
    assert!(decide(&node, 10).is_allowed());
    clock.advance(Micros::from_millis(500));
    // The other part is full, or the same one has 5 left.
    assert!(decide(&node, 10).is_allowed());
    let wait = |decision: &Decision| match reading(decision, 0).retry {
        Retry::After(wait) => wait.get(),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(&decide(&node, 6)), 100_000, "one has 5, the other 0");
    assert_eq!(wait(&decide(&node, 10)), 500_000);
    clock.advance(Micros::new(99_999));
    assert!(!decide(&node, 6).is_allowed());
    clock.advance(Micros::new(1));
    assert!(decide(&node, 6).is_allowed());
}

#[test]
fn request_makes_at_most_two_calls() {
    let (node, _) = node(&[&split_rule(20, "fixed_window", 2)]);
    for _ in 0..60 {
        let allowed = decide(&node, 1).is_allowed();
        let calls = node.store.take_recorded_calls();
        assert!(calls.iter().all(|call| *call == (Op::Charge, 1)), "{calls:?}");
        assert!(if allowed { calls.len() <= 2 } else { calls.len() == 2 });
    }
}

/// A refusal by an exact rule is final; nothing is charged on the parts.
#[test]
fn other_rules_refuse_at_once() {
    let exact = "{ id: e, key_by: ip, limit: 5/h using fixed_window }";
    let (node, _) = node(&[&split_rule(40, "fixed_window", 4), exact]);
    (0..5).for_each(|_| assert!(decide(&node, 1).is_allowed()));
    let before = used(&node.limiter, 0);
    node.store.take_recorded_calls();
    assert_eq!(reading_summary(&decide(&node, 1))[1], "e deny 0");
    assert_eq!(node.store.take_recorded_calls(), [(Op::Charge, 2)], "one attempt");
    let verdict = |(_, reading): (_, &RuleReading)| reading.verdict;
    let both = decide(&node, 11);
    assert_eq!(both.readings().map(verdict).collect::<Vec<_>>(), [Verdict::Deny; 2]);
    assert_eq!(node.store.take_recorded_calls(), [(Op::Charge, 2)], "also if both refuse");
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (before, vec![5]));
}

/// Two split rules may each need their second part.
#[test]
fn two_split_rules_are_charged_together() {
    let rule = |id| format!("{{ id: {id}, key_by: user_id, limit: 40/h, split: 2 }}");
    let (node, _) = node(&[&rule("a"), &rule("b")]);
    let admitted = (0..400).filter(|_| decide(&node, 1).is_allowed()).count();
    assert_eq!(admitted, 40);
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (vec![20; 2], vec![20; 2]));
}

#[test]
fn batch_and_no_queue_charge_parts() {
    let exact = "{ id: e, match: { path: /x }, key_by: ip, limit: 100/h using fixed_window }";
    let (node, _) = node(&[&split_rule(40, "fixed_window", 2), exact]);
    let (plain, other) =
        (facts(ANN), facts(&[("user_id", "ann"), ("ip", "203.0.113.7"), ("path", "/x")]));
    let query = |facts, action| DecisionQuery { facts, action, inline_limit: None };
    let both = [query(&plain, QueryAction::Charge(3)), query(&other, QueryAction::Charge(4))];
    let decide_both = || poll_ready(node.limiter.decide_batch(&both)).unwrap();
    let decisions = decide_both();
    assert_eq!(reading_summary(&decisions[0]), ["r allow 13"], "one charge of 7 to one part");
    assert_eq!(reading_summary(&decisions[1]), ["r allow 13", "e allow 96"]);
    // A refund of one decision leaves the charge of the other, on the same part.
    let before = used(&node.limiter, 0);
    poll_ready(node.limiter.refund_decisions(decisions));
    assert_eq!(before.iter().sum::<u64>(), 7);
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (vec![0; 2], vec![0]));
    let admitted = (0..20).filter(|_| decide_both()[0].is_allowed()).count();
    assert_eq!(admitted, 4, "⌊20/7⌋ on each part");
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (vec![14; 2], vec![16]));
    let alone = poll_ready(node.limiter.decide_no_queue(&plain, 6));
    assert!(alone.is_allowed());
    let separately = node.limiter.decide_separately(&both[..1]);
    separately.into_iter().for_each(|one| drop(poll_ready(one).unwrap()));
    let refund = [query(&plain, QueryAction::Refund(20))];
    poll_ready(node.limiter.decide_batch(&refund)).unwrap();
    let left: u64 = used(&node.limiter, 0).iter().sum();
    assert!((14..=17).contains(&left), "34 to 37 were used: {left}");
    // A charge of nothing reads all parts.
    let none = [query(&plain, QueryAction::Charge(0))];
    let decisions = poll_ready(node.limiter.decide_batch(&none)).unwrap();
    assert_eq!(reading(&decisions[0], 0).remaining, 40 - left);
}

#[test]
fn leased_and_async_rules_beside_parts_are_all_or_none() {
    let leased = "{ id: l, key_by: ip, limit: 1000/h using fixed_window, consistency: leased }";
    let soft = "{ id: s, key_by: ip, limit: 1000/h using fixed_window, consistency: async }";
    let rules = [&split_rule(60, "fixed_window", 3), leased, soft];
    let clock = clock();
    let nodes = sharing_nodes(&document(&rules), 2, &clock);
    let mut admitted = 0;
    for _ in 0..300 {
        for node in &nodes {
            admitted += u64::from(node.decide_with_tasks(&facts(ANN), 1).is_allowed());
            node.sweep();
        }
        clock.advance(Micros::from_millis(1));
    }
    assert_eq!(admitted, 60);
    clock.advance(Micros::from_secs(1));
    for node in &nodes {
        node.limiter.retire_leases();
        node.run_tasks();
    }
    let counters = [0, 1, 2].map(|rule| used(&nodes[0].limiter, rule).iter().sum::<u64>());
    assert_eq!(counters, [60; 3], "refused requests were charged nowhere");
}

#[test]
fn shadow_rule_tries_second_part() {
    let shadow = split_rule(40, "fixed_window", 2).replace("split", "mode: shadow, split");
    let exact = "{ id: e, key_by: ip, limit: 100/h using fixed_window }";
    let (node, _) = node(&[&shadow, exact]);
    let verdicts: Vec<Verdict> =
        (0..90).map(|_| decide(&node, 1).readings().next().unwrap().1.verdict).collect();
    assert_eq!(verdicts.iter().filter(|it| **it == Verdict::Allow).count(), 40);
    assert!(verdicts[..40].iter().all(|it| *it == Verdict::Allow), "the last one in both parts");
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (vec![20; 2], vec![90]));
}

/// Such a rule is charged in the first attempt already.
#[test]
fn always_charged_rule_is_charged_once() {
    let always = "{ id: e, key_by: ip, limit: 500/h using fixed_window, charge: always }";
    let (node, _) = node(&[&split_rule(40, "fixed_window", 2), always]);
    for requests in 1..=60 {
        decide(&node, 1);
        assert_eq!(used(&node.limiter, 1), [requests]);
    }
    assert_eq!(used(&node.limiter, 0), [20, 20]);
}

#[test]
fn cached_refusal_of_first_part_leads_to_second() {
    let (node, _) = node(&[&split_rule(40, "fixed_window", 2)]);
    node.store.set_fault(StoreFault::DenyCached);
    assert_eq!((0..80).filter(|_| decide(&node, 1).is_allowed()).count(), 40);
    assert_eq!(decide(&node, 1).answered_by(), AnsweredBy::DenyCache);
}

#[test]
fn refund_goes_to_charged_part() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let (node, _) = node(&[&split_rule(80, algorithm, 4)]);
        (0..20).for_each(|_| assert!(decide(&node, 2).is_allowed()));
        for cost in [1, 3, 5] {
            let before = used(&node.limiter, 0);
            let decision = decide(&node, cost);
            let charged = decision.charged_cost(decision.readings().next().unwrap().1);
            assert_eq!(charged, u64::from(cost));
            let part = charged_part(&before, &used(&node.limiter, 0));
            assert_eq!(used(&node.limiter, 0)[part], before[part] + u64::from(cost));
            poll_ready(node.limiter.refund_decision(decision));
            assert_eq!(used(&node.limiter, 0), before, "{algorithm}");
        }
    }
}

/// The caller knows the facts and the time only.
#[test]
fn refund_by_facts_finds_usage() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let (node, clock) = node(&[&split_rule(80, algorithm, 4)]);
        let decision = decide(&node, 7);
        let refund = |cost, at| {
            let ann = facts(ANN);
            reading_summary(&poll_ready(node.limiter.refund(&ann, Some("r"), cost, at)))
        };
        let at = decision.charged_at();
        clock.advance(Micros::from_millis(1));
        assert_eq!(refund(3, at), ["r allow 76"], "{algorithm}");
        assert_eq!(refund(30, at), ["r allow 80"], "{algorithm}");
        // Usage of several parts: at most what was charged is given back.
        let same_time: Vec<Decision> = (0..40).map(|_| decide(&node, 1)).collect();
        let at = same_time[0].charged_at();
        assert_eq!(refund(25, at), ["r allow 65"], "{algorithm}");
        assert_eq!(refund(25, at), ["r allow 80"], "{algorithm}");
    }
}

/// A log gives back only entries of the time of the charge, wherever they are.
#[test]
fn log_refund_by_facts_finds_part_by_time() {
    let (node, clock) = node(&[&split_rule(160, "sliding_window_log", 4)]);
    let times: Vec<_> = (0..40)
        .map(|_| {
            clock.advance(Micros::from_millis(1));
            decide(&node, 1).charged_at()
        })
        .collect();
    for (refunded, at) in (1..).zip(times) {
        for _ in 0..2 {
            poll_ready(node.limiter.refund(&facts(ANN), None, 1, at));
            assert_eq!(used(&node.limiter, 0).iter().sum::<u64>(), 40 - refunded);
        }
    }
}

#[test]
fn peek_explain_and_counters_read_all_parts() {
    let (node, _) = node(&[&split_rule(80, "fixed_window", 4)]);
    (0..30).for_each(|_| drop(decide(&node, 1)));
    let limiter = &node.limiter;
    for decision in [
        poll_ready(limiter.peek(&facts(ANN), None, 1)),
        poll_ready(limiter.peek(&facts(ANN), Some("r"), 1)),
        poll_ready(limiter.peek_no_queue(&facts(ANN), None, 1)),
    ] {
        assert_eq!(reading_summary(&decision), ["r allow 50"]);
        assert_eq!(reading(&decision, 0).limit, 80);
    }
    let explained = poll_ready(limiter.explain(&facts(ANN), 1)).rules.remove(0);
    assert_eq!(explained.consistency.unwrap().description, "split (4 parts)");
    assert_eq!(explained.why, "50 of 80 left, 1 requested");
    let counters = poll_ready(limiter.counters(&facts(ANN), None));
    let listed = counters.iter().map(|(rule, _, it)| (rule.id(), it.limit, it.remaining));
    assert_eq!(listed.collect::<Vec<_>>(), [("r", 80, 50)]);
    let over = poll_ready(limiter.peek(&facts(ANN), None, 21));
    assert!(!over.is_allowed(), "no part admits it");
}

/// A flood of requests that a `deny` rule refuses must not cost more than one of decisions.
#[test]
fn denied_request_reads_one_part() {
    let deny = "{ id: d, key_by: ip, limit: { requests: deny } }";
    let (node, _) = node(&[&split_rule(80, "fixed_window", 4), deny]);
    let query =
        DecisionQuery { facts: &facts(ANN), action: QueryAction::Charge(1), inline_limit: None };
    assert_eq!(reading_summary(&decide(&node, 1)), ["r allow 20", "d deny -"]);
    poll_ready(node.limiter.decide_batch(&[query])).unwrap();
    poll_ready(node.limiter.decide_batch(&[query, query])).unwrap();
    assert_eq!(node.store.take_recorded_calls(), [(Op::Peek, 1); 3]);
    let peeked = poll_ready(node.limiter.peek(&facts(ANN), None, 1));
    assert_eq!(reading_summary(&peeked), ["r allow 80", "d deny -"]);
}

#[test]
fn new_generation_has_new_parts() {
    let (node, _) = node(&[&split_rule(80, "fixed_window", 4)]);
    assert!(decide(&node, 20).is_allowed());
    let next = split_rule(80, "fixed_window", 4).replace("split", "generation: 2, split");
    install(&node, &[&next]);
    assert_eq!(used(&node.limiter, 0), [0; 4]);
    assert_eq!((0..2_000).filter(|_| decide(&node, 1).is_allowed()).count(), 80);
}

#[test]
fn reset_and_force_address_all_parts() {
    let other = "{ id: e, key_by: ip, limit: 80/h using fixed_window }";
    let (node, _) = node(&[&split_rule(80, "fixed_window", 4), other]);
    poll_ready(node.limiter.force(&facts(ANN), None, 30));
    let mut forced = used(&node.limiter, 0);
    forced.sort_unstable();
    assert_eq!((forced, used(&node.limiter, 1)), (vec![7, 7, 8, 8], vec![30]));
    for cost in [1, 1, 2] {
        poll_ready(node.limiter.force(&facts(ANN), Some("r"), cost));
    }
    assert_eq!(used(&node.limiter, 0).iter().sum::<u64>(), 34);
    let reset = poll_ready(node.limiter.reset(&facts(ANN), Some("r")));
    assert_eq!(reading_summary(&reset), ["r allow 80"]);
    assert_eq!((used(&node.limiter, 0), used(&node.limiter, 1)), (vec![0; 4], vec![30]));
    node.store.set_fault(StoreFault::Unreachable);
    let failed = poll_ready(node.limiter.reset(&facts(ANN), None));
    assert!(failed.readings().all(|(_, reading)| reading.uncounted));
    assert_eq!(failed.answered_by(), AnsweredBy::Fallback);
}

#[test]
fn deferred_cost_corrects_charged_part() {
    let rule = "{ id: r, key_by: user_id, limit: 80/h using fixed_window, split: 4, \
                cost: { response_header: x-cost, max: 20, estimate: 5 } }";
    let (node, _) = node(&[rule]);
    for (actual, expected) in [(12, 12), (2, 2), (0, 0)] {
        let before = used(&node.limiter, 0);
        let mut decision = decide(&node, 1);
        let part = charged_part(&before, &used(&node.limiter, 0));
        let deferred = decision.take_deferred_charge().unwrap();
        poll_ready(node.limiter.settle_deferred(deferred, |_| Some(actual)));
        let mut after = before.clone();
        after[part] += expected;
        assert_eq!(used(&node.limiter, 0), after);
    }
}

/// The counters that observers see.
#[derive(Debug, Default)]
struct SeenCounters(Mutex<Vec<(u32, Fingerprint)>>);

impl DecisionObserver for SeenCounters {
    fn on_decision(&self, event: &DecisionEvent<'_, '_>) {
        let counters = event.counters().map(|counter| (counter.reading.rule, counter.key));
        self.0.lock().unwrap().extend(counters);
    }
}

#[test]
fn observers_see_one_counter_per_client() {
    let seen = Arc::new(SeenCounters::default());
    let (SharingNode { limiter, .. }, _) = node(&[&split_rule(40, "fixed_window", 4)]);
    let limiter = limiter.with_observer(Arc::clone(&seen) as Arc<dyn DecisionObserver>);
    (0..50).for_each(|_| drop(poll_ready(limiter.decide(&facts(ANN), 1))));
    let rules = limiter.rules();
    let whole = (0, rules[0].fingerprint(&facts(ANN), &rules));
    assert_eq!(*seen.0.lock().unwrap(), [whole; 50]);
}

/// Nodes with a local share each, on a store that they share.
fn nodes_with_local_shares(source: &str, nodes: u32, clock: &ManualClock) -> Vec<TestNode> {
    let nodes = fleet(source, nodes, clock);
    for node in &nodes {
        let rules = compile_rules(source).for_shared_store();
        poll_ready(node.limiter.install(rules)).unwrap();
    }
    nodes
}

#[test]
fn outage_usage_is_settled_to_its_parts() {
    let source =
        document(&[&split_rule(120, "fixed_window", 4).replace("split", "on_fail: local, split")]);
    let nodes = nodes_with_local_shares(&source, 2, &clock());
    let decide = |node: &TestNode| poll_ready(node.limiter.decide(&facts(ANN), 1)).is_allowed();
    (0..20).for_each(|_| assert!(decide(&nodes[0])));
    nodes.iter().for_each(|node| node.store.set_fault(StoreFault::Unreachable));
    // A node has half of each part, of which the first one used 20.
    let admitted = nodes.iter().map(|node| (0..300).filter(|_| decide(node)).count());
    assert_eq!(admitted.collect::<Vec<_>>(), [40, 60]);
    nodes.iter().for_each(|node| node.store.set_fault(StoreFault::None));
    while nodes.iter().any(|node| node.limiter.has_unsettled()) {
        for node in &nodes {
            poll_ready(node.limiter.settle());
        }
    }
    assert_eq!(used(&nodes[0].limiter, 0), [30; 4]);
    assert!(!decide(&nodes[1]));
}

#[test]
fn unreachable_store_applies_on_fail_of_split_rule() {
    for (on_fail, allowed) in [("allow", true), ("deny", false)] {
        let rule = split_rule(40, "fixed_window", 2);
        let (node, _) = node(&[&rule.replace("split", &format!("on_fail: {on_fail}, split"))]);
        node.store.set_fault(StoreFault::Unreachable);
        let decision = decide(&node, 1);
        assert_eq!(
            (decision.is_allowed(), decision.answered_by()),
            (allowed, AnsweredBy::Fallback)
        );
        assert!(decision.readings().all(|(_, reading)| reading.uncounted));
    }
}

fn install(node: &SharingNode, rules: &[&str]) {
    poll_ready(node.limiter.install(compile_rules(&document(rules)))).unwrap();
}

#[test]
fn edited_limit_keeps_usage_of_each_part() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let (node, _) = node(&[&split_rule(80, algorithm, 4)]);
        let kept: Vec<Decision> = (0..30).map(|_| decide(&node, 1)).collect();
        let before = used(&node.limiter, 0);
        install(&node, &[&split_rule(100, algorithm, 4)]);
        assert_eq!(used(&node.limiter, 0), before, "{algorithm}");
        // The charges are refunded where they were made.
        kept.into_iter().for_each(|one| poll_ready(node.limiter.refund_decision(one)));
        assert_eq!(used(&node.limiter, 0), [0; 4], "{algorithm}");
        let admitted = (0..2_000).filter(|_| decide(&node, 1).is_allowed()).count();
        assert_eq!(admitted, 100, "{algorithm}");
    }
}

#[test]
fn changed_part_count_resets_or_keeps_usage() {
    let forms = ["split: 4", "split: 3", "on_fail: deny"];
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        for on_change in ["keep", "reset"] {
            let rule = |form: &str| {
                let fields = format!("on_change: {on_change}, {form}");
                format!("{{ id: r, key_by: user_id, limit: 90/h using {algorithm}, {fields} }}")
            };
            for from in forms {
                for to in forms.into_iter().filter(|to| *to != from) {
                    let (node, clock) = node(&[&rule(from)]);
                    let decision = decide(&node, 7);
                    (0..30).for_each(|_| assert!(decide(&node, 1).is_allowed()));
                    install(&node, &[&rule(to)]);
                    let left = || reading(&poll_ready(node.limiter.peek(&facts(ANN), None, 1)), 0);
                    let expected = if on_change == "keep" { 53 } else { 90 };
                    let what = format!("{algorithm}: {from} to {to}");
                    assert_eq!(left().remaining, expected, "{what}");
                    assert_eq!(left().remaining, expected, "{what}: counted once");
                    // The counter of the charge is no longer in use.
                    poll_ready(node.limiter.refund_decision(decision));
                    assert_eq!(left().remaining, expected, "{what}");
                    let admitted = (0..2_000).filter(|_| decide(&node, 1).is_allowed()).count();
                    assert_eq!(u64::try_from(admitted).unwrap(), expected, "{what}");
                    clock.advance(Micros::from_secs(3 * 3_600));
                    assert_eq!(left().remaining, 90, "{what}");
                }
            }
        }
    }
}

/// Every node and thread picks its own parts.
#[test]
fn concurrent_nodes_never_exceed_limit() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let nodes = sharing_nodes(&document(&[&split_rule(500, algorithm, 7)]), 4, &clock());
        let admitted: u64 = std::thread::scope(|scope| {
            let load = |node| {
                let costs = (0..1_000).map(|i| 1 + i % 3);
                move || {
                    let admit = |cost| if decide(node, cost).is_allowed() { cost } else { 0 };
                    costs.map(admit).map(u64::from).sum::<u64>()
                }
            };
            let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(load(node))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 500, "{algorithm}: a cost of 1 uses up each part");
        assert_eq!(used(&nodes[0].limiter, 0), [72, 72, 72, 71, 71, 71, 71], "{algorithm}");
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Charge {
        node: usize,
        cost: u32,
    },
    /// Refunds one of the charges that were made: by its decision, or by its facts and time.
    Refund {
        which: usize,
        by_facts: bool,
    },
    Advance {
        millis: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..2_usize, 1..12_u32).prop_map(|(node, cost)| Step::Charge { node, cost }),
        3 => any::<(usize, bool)>().prop_map(|(which, by_facts)| Step::Refund { which, by_facts }),
        1 => (0..700_u64).prop_map(|millis| Step::Advance { millis }),
    ];
    prop::collection::vec(step, 1..80)
}

/// An exact rule beside the split one refuses some requests.
const BESIDE: &str = "{ id: e, key_by: ip, limit: 90/s using fixed_window, charge: admitted }";

fn history_rules(algorithm: &str, requests: u64, parts: u32) -> String {
    let limit = format!("{requests}/s using {algorithm}");
    document(&[&format!("{{ id: r, key_by: user_id, limit: {limit}, split: {parts} }}"), BESIDE])
}

/// Runs a history; returns why it breaks a promise, if it does.
fn check_history(algorithm: &str, requests: u64, parts: u32, steps: &[Step]) -> Result<(), String> {
    let clock = clock();
    let nodes = sharing_nodes(&history_rules(algorithm, requests, parts), 2, &clock);
    let limiter = &nodes[0].limiter;
    let rules = limiter.rules();
    let whole = rules[0].limit().policy().unwrap();
    let mut charged: Vec<(Decision, usize)> = Vec::new();
    let mut admitted: Vec<TimedAdmission> = Vec::new();
    // A refund that does not know the part can make a bucket drain faster than its rate.
    let mut is_bounded = true;
    for step in steps {
        let (before, beside) = (used(limiter, 0), used(limiter, 1));
        match *step {
            Step::Advance { millis } => clock.advance(Micros::from_millis(millis)),
            Step::Charge { node, cost } => {
                let decision = decide(&nodes[node], cost);
                let (after, beside_after) = (used(limiter, 0), used(limiter, 1));
                if !decision.is_allowed() {
                    if (&after, &beside_after) != (&before, &beside) {
                        return Err(format!("a refusal changed {before:?} to {after:?}"));
                    }
                    continue;
                }
                let part = charged_part(&before, &after);
                let cost = u64::from(cost);
                if [after[part] - before[part], beside_after[0] - beside[0]] != [cost; 2] {
                    return Err(format!(
                        "{cost}: {before:?} {after:?} {beside:?} {beside_after:?}"
                    ));
                }
                admitted.push(TimedAdmission { at: clock.now(), cost, delay: Micros::ZERO });
                charged.push((decision, part));
            }
            Step::Refund { which, by_facts } => {
                if charged.is_empty() {
                    continue;
                }
                let at = which % charged.len();
                let (decision, part) = charged.remove(at);
                let cost = admitted.remove(at).cost;
                if by_facts {
                    is_bounded &= !whole.algorithm().is_bucket();
                    let (cost, at) = (u32::try_from(cost).unwrap(), decision.charged_at());
                    poll_ready(limiter.refund(&facts(ANN), None, cost, at));
                } else {
                    poll_ready(limiter.refund_decision(decision));
                }
                let after = used(limiter, 0);
                let back: u64 = before.iter().sum::<u64>().saturating_sub(after.iter().sum());
                // Fractions of a request in several parts may each show as one.
                let most = cost + if by_facts { u64::from(parts) - 1 } else { 0 };
                let elsewhere = (0..after.len()).any(|i| i != part && after[i] != before[i]);
                if back > most || elsewhere && !by_facts {
                    return Err(format!("refund of {cost} to {part}: {before:?} {after:?}"));
                }
            }
        }
        if is_bounded {
            check_bound(whole, &admitted)?;
        }
    }
    Ok(())
}

#[test]
fn any_history_keeps_bound_of_whole_limit() {
    let numbers = (
        prop::sample::select(Algorithm::ALL.map(Algorithm::name).to_vec()),
        48_u64..100,
        2..=4_u32,
        steps(),
    );
    check_property(
        "split_history",
        cases() / 20,
        &numbers,
        |(algorithm, requests, parts, steps)| {
            check_history(algorithm, requests, parts, &steps).map_err(TestCaseError::fail)
        },
    );
}
