//! What a node says that it holds of leased and asynchronous counters, by rule and by key.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::node::sharing_nodes;
use common::{clock, facts};
use tidegate_core::time::Micros;
use tidegate_limiter::{Explanation, HeldCounters, IndivisibleRule, RuleConsistency};
use tidegate_rules::Facts;

const RULES: &str = "rules:
  - { id: lent, key_by: user_id, limit: 1000/h burst 500, consistency: leased,
      lease: { ttl: 10s } }
  - { id: soft, key_by: user_id, limit: 1000/h, consistency: async }
  - { id: strict, key_by: user_id, limit: 1000/h }
  - { id: free, limit: { requests: unlimited } }";

fn units(explanation: &Explanation, rule: &str) -> Option<u64> {
    explanation.rules.iter().find(|explained| explained.id == rule).unwrap().units
}

#[test]
fn holdings_name_units_by_rule_and_key() {
    let clock = clock();
    let node = sharing_nodes(RULES, 1, &clock).remove(0);
    assert!(node.limiter.holdings().unwrap().rules.is_empty());
    let user = facts(&[("user_id", "u1")]);
    (0..20).for_each(|_| assert!(node.decide_with_tasks(&user, 1).is_allowed()));
    node.run_tasks();

    let (holdings, stats) = (node.limiter.holdings().unwrap(), node.stats());
    let held = node.limiter.lease_stats().unwrap().units_held;
    assert!(held > 0 && stats.units_open > 0, "{holdings:?}");
    let leased = HeldCounters { counters: 1, units: held };
    let unflushed = HeldCounters { counters: 1, units: stats.units_open };
    assert_eq!((holdings.leased, holdings.unflushed), (leased, unflushed));
    assert_eq!((holdings.rules["lent"], holdings.rules["soft"]), (leased, unflushed));
    assert_eq!(holdings.rules.len(), 2, "the store decides the other rules");

    let explained = common::poll_ready(node.limiter.explain(&user, 1));
    assert_eq!(units(&explained, "lent"), Some(held));
    assert_eq!(units(&explained, "soft"), Some(stats.units_open));
    assert_eq!((units(&explained, "strict"), units(&explained, "free")), (None, None));
    let other = facts(&[("user_id", "u2")]);
    let explained = common::poll_ready(node.limiter.explain(&other, 1));
    assert_eq!((units(&explained, "lent"), units(&explained, "soft")), (Some(0), Some(0)));

    clock.advance(Micros::from_millis(100));
    node.sweep();
    assert_eq!(node.limiter.holdings().unwrap().unflushed, HeldCounters { counters: 1, units: 0 });
}

#[test]
fn descriptions_name_mode_and_what_store_counts_by() {
    let node = sharing_nodes(RULES, 1, &clock()).remove(0);
    let explained = common::poll_ready(node.limiter.explain(&Facts::new(), 1));
    let consistency = |at: usize| {
        let consistency: &Option<RuleConsistency> = &explained.rules[at].consistency;
        consistency.as_ref().map(|it| (it.mode, it.description.as_str()))
    };
    let lent = "leased (ttl 10s, bound exact), leased from 1000 per 1h by token_bucket, burst 497";
    assert_eq!(consistency(0), Some(("leased", lent)));
    assert_eq!(consistency(1), Some(("async", "async (flush 100ms)")));
    assert_eq!(consistency(2), Some(("exact", "exact: the store decides every request")));
    assert_eq!(consistency(3), None);
}

/// The part of each of three nodes in a burst of two is nothing.
#[test]
fn rule_that_nodes_cannot_share_is_named() {
    let source = "rules:
  - { id: fair, key_by: user_id, limit: 3/h, consistency: async }
  - { id: small, key_by: user_id, limit: 1000/h burst 2, consistency: async }
  - { id: strict, key_by: user_id, limit: 1/h }";
    for (nodes, is_indivisible) in [(2, false), (3, true)] {
        let node = sharing_nodes(source, nodes, &clock()).remove(0);
        let found = node.limiter.indivisible_rules();
        let small = IndivisibleRule { rule: "small".to_owned(), limit: 2, nodes };
        assert_eq!(found, is_indivisible.then_some(small).into_iter().collect::<Vec<_>>());
        let user = facts(&[("user_id", "u1")]);
        let explained = common::poll_ready(node.limiter.explain(&user, 1));
        let described = |at: usize| explained.rules[at].consistency.clone().unwrap().description;
        let why = "; the store decides every request: 3 nodes cannot share 2";
        let small = format!("async (flush 100ms){}", if is_indivisible { why } else { "" });
        assert_eq!([described(0), described(1)], ["async (flush 100ms)", small.as_str()]);
    }
}
