//! `replaces`: rules that replace others within a request and across the queries of a batch; and
//! descriptors as keys.

mod common;

use common::{facts, limiter, poll_ready, reading_summary};
use tidegate_limiter::{Decision, DecisionQuery, QueryAction};
use tidegate_rules::{DescriptorPair, Facts, InlineLimit};

const RULES: &str = "rules:
  - { id: all, match: { domain: d, user: '*' }, key_by: user, limit: 2/h using fixed_window }
  - { id: vip, match: { domain: d, vip: 'yes' }, key_by: vip, limit: 9/h using fixed_window, replaces: all }
  - { id: other, match: { domain: d }, key_by: global, limit: 20/h using fixed_window }";

fn charge<'q, 'f>(facts: &'q Facts<'f>) -> DecisionQuery<'q, 'f> {
    DecisionQuery { facts, action: QueryAction::Charge(1), inline_limit: None }
}

fn all_summaries(decisions: &[Decision]) -> Vec<Vec<String>> {
    decisions.iter().map(reading_summary).collect()
}

#[test]
fn replaced_rule_is_not_charged() {
    let (limiter, _) = limiter(RULES);
    let plain = facts(&[("domain", "d"), ("user", "ann")]);
    let vip = facts(&[("domain", "d"), ("user", "ann"), ("vip", "yes")]);
    assert_eq!(
        reading_summary(&poll_ready(limiter.decide(&vip, 1))),
        ["vip allow 8", "other allow 19"]
    );
    assert_eq!(
        reading_summary(&poll_ready(limiter.decide(&plain, 1))),
        ["all allow 1", "other allow 18"]
    );
}

#[test]
fn replacement_applies_to_whole_batch() {
    let (limiter, _) = limiter(RULES);
    let (user, vip) =
        (facts(&[("domain", "d"), ("user", "ann")]), facts(&[("domain", "d"), ("vip", "yes")]));
    let call = [charge(&user), charge(&vip)];
    let together = poll_ready(limiter.decide_batch(&call)).unwrap();
    assert_eq!(
        all_summaries(&together),
        [vec!["other allow 18"], vec!["vip allow 8", "other allow 18"]]
    );
    let each: Vec<Decision> = limiter
        .decide_separately(&call)
        .into_iter()
        .flat_map(|one| poll_ready(one).unwrap())
        .collect();
    assert_eq!(
        all_summaries(&each),
        [vec!["other allow 17"], vec!["vip allow 7", "other allow 16"]]
    );
    let alone = poll_ready(limiter.decide_batch(&call[..1])).unwrap();
    assert_eq!(all_summaries(&alone), [["all allow 1", "other allow 15"]]);
}

#[test]
fn inline_limit_neither_replaces_nor_is_replaced() {
    let (limiter, _) = limiter(RULES);
    let (user, vip) =
        (facts(&[("domain", "d"), ("user", "ann")]), facts(&[("domain", "d"), ("vip", "yes")]));
    let window = tidegate_core::time::Micros::from_secs(60);
    let limit = Some(InlineLimit { requests: 5, window });
    let first = poll_ready(
        limiter
            .decide_batch(&[charge(&user), DecisionQuery { inline_limit: limit, ..charge(&vip) }]),
    )
    .unwrap();
    assert_eq!(
        all_summaries(&first),
        [vec!["all allow 1", "other allow 19"], vec!["override allow 4"]]
    );
    let second = poll_ready(
        limiter
            .decide_batch(&[DecisionQuery { inline_limit: limit, ..charge(&user) }, charge(&vip)]),
    )
    .unwrap();
    assert_eq!(
        all_summaries(&second),
        [vec!["override allow 4"], vec!["vip allow 8", "other allow 18"]]
    );
}

#[test]
fn descriptor_key_separates_unshared_entries() {
    let (limiter, _) = limiter(
        "key_by: descriptor
rules:
  - { id: own, match: { domain: d, descriptor: [a, b] }, limit: 9/h using fixed_window }
  - id: shared
    match: { domain: d, descriptor: [a, { key: f, value: 'x/*', shared: true }] }
    limit: 9/h using fixed_window",
    );
    let left = |pairs: [(&'static str, &'static str); 2]| {
        let entries =
            pairs.map(|(key, value)| DescriptorPair { key: key.into(), value: value.into() });
        let mut facts: Facts<'_> = [("domain", "d")].into_iter().collect();
        facts.set_descriptor(&entries);
        reading_summary(&poll_ready(limiter.decide(&facts, 1))).concat()
    };
    assert_eq!(left([("a", "1"), ("b", "2")]), "own allow 8");
    assert_eq!(left([("a", "1"), ("b", "2")]), "own allow 7");
    assert_eq!(left([("a", "2"), ("b", "1")]), "own allow 8");
    assert_eq!(left([("a", "1"), ("b", "")]), "own allow 8", "an empty value is a value");
    assert_eq!(left([("a", "1"), ("f", "x/1")]), "shared allow 8");
    assert_eq!(left([("a", "1"), ("f", "x/2")]), "shared allow 7");
    assert_eq!(left([("a", "2"), ("f", "x/2")]), "shared allow 8");
    assert_eq!(left([("a", "2"), ("f", "y")]), "", "no rule matches");
}
