//! Rules that stand in for others, in one request and over the requests of a call; and descriptors as keys.

mod common;

use common::{facts, limiter, ready, told};
use tidegate_engine::{Asked, Decision, Question};
use tidegate_rules::{BroughtLimit, Entry, Facts};

const RULES: &str = "rules:
  - { id: all, match: { domain: d, user: '*' }, key_by: user, limit: 2/h using fixed_window }
  - { id: vip, match: { domain: d, vip: 'yes' }, key_by: vip, limit: 9/h using fixed_window, replaces: all }
  - { id: other, match: { domain: d }, key_by: global, limit: 20/h using fixed_window }";

fn charge<'q, 'f>(facts: &'q Facts<'f>) -> Question<'q, 'f> {
    Question { facts, asked: Asked::Charge(1), limit: None }
}

fn all_told(decisions: &[Decision]) -> Vec<Vec<String>> {
    decisions.iter().map(told).collect()
}

#[test]
fn a_rule_that_is_replaced_is_neither_asked_nor_charged() {
    let (limiter, _) = limiter(RULES);
    let plain = facts(&[("domain", "d"), ("user", "ann")]);
    let vip = facts(&[("domain", "d"), ("user", "ann"), ("vip", "yes")]);
    assert_eq!(told(&ready(limiter.decide(&vip, 1))), ["vip allow 8", "other allow 19"]);
    assert_eq!(told(&ready(limiter.decide(&plain, 1))), ["all allow 1", "other allow 18"]);
}

#[test]
fn what_governs_one_request_of_a_call_replaces_rules_of_the_others() {
    let (limiter, _) = limiter(RULES);
    let (user, vip) =
        (facts(&[("domain", "d"), ("user", "ann")]), facts(&[("domain", "d"), ("vip", "yes")]));
    let call = [charge(&user), charge(&vip)];
    let together = ready(limiter.decide_together(&call)).unwrap();
    assert_eq!(
        all_told(&together),
        [vec!["other allow 18"], vec!["vip allow 8", "other allow 18"]]
    );
    let each: Vec<Decision> =
        limiter.decide_each(&call).into_iter().flat_map(|one| ready(one).unwrap()).collect();
    assert_eq!(all_told(&each), [vec!["other allow 17"], vec!["vip allow 7", "other allow 16"]]);
    let alone = ready(limiter.decide_together(&call[..1])).unwrap();
    assert_eq!(all_told(&alone), [["all allow 1", "other allow 15"]]);
}

#[test]
fn a_limit_that_is_brought_replaces_nothing_and_is_not_replaced() {
    let (limiter, _) = limiter(RULES);
    let (user, vip) =
        (facts(&[("domain", "d"), ("user", "ann")]), facts(&[("domain", "d"), ("vip", "yes")]));
    let window = tidegate_core::time::Micros::from_secs(60);
    let limit = Some(BroughtLimit { requests: 5, window });
    let first =
        ready(limiter.decide_together(&[charge(&user), Question { limit, ..charge(&vip) }]))
            .unwrap();
    assert_eq!(all_told(&first), [vec!["all allow 1", "other allow 19"], vec!["override allow 4"]]);
    let second =
        ready(limiter.decide_together(&[Question { limit, ..charge(&user) }, charge(&vip)]))
            .unwrap();
    assert_eq!(
        all_told(&second),
        [vec!["override allow 4"], vec!["vip allow 8", "other allow 18"]]
    );
}

#[test]
fn a_descriptor_as_the_key_tells_every_entry_apart_but_what_is_shared() {
    let (limiter, _) = limiter(
        "key_by: descriptor
rules:
  - { id: own, match: { domain: d, descriptor: [a, b] }, limit: 9/h using fixed_window }
  - id: shared
    match: { domain: d, descriptor: [a, { key: f, value: 'x/*', shared: true }] }
    limit: 9/h using fixed_window",
    );
    let left = |pairs: [(&'static str, &'static str); 2]| {
        let entries = pairs.map(|(key, value)| Entry { key: key.into(), value: value.into() });
        let mut facts: Facts<'_> = [("domain", "d")].into_iter().collect();
        facts.set_descriptor(&entries);
        told(&ready(limiter.decide(&facts, 1))).concat()
    };
    assert_eq!(left([("a", "1"), ("b", "2")]), "own allow 8");
    assert_eq!(left([("a", "1"), ("b", "2")]), "own allow 7");
    assert_eq!(left([("a", "2"), ("b", "1")]), "own allow 8");
    assert_eq!(left([("a", "1"), ("b", "")]), "own allow 8", "an empty value is a value");
    assert_eq!(left([("a", "1"), ("f", "x/1")]), "shared allow 8");
    assert_eq!(left([("a", "1"), ("f", "x/2")]), "shared allow 7");
    assert_eq!(left([("a", "2"), ("f", "x/2")]), "shared allow 8");
    assert_eq!(left([("a", "2"), ("f", "y")]), "", "no such place");
}
