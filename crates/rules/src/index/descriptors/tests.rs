//! Compares the descriptor index with a reference: a linear search through all rules.

use proptest::prelude::*;
use tidegate_core::key::Secret;

use crate::facts::DescriptorPair;
use crate::{Document, Facts, MatchedRules, RuleSet};

const KEYS: [&str; 3] = ["a", "b", "a_b"];
const PATTERNS: [&str; 9] = ["", "=", "=x", "=xy", "=x*", "=*y", "=*", "=x*y", "=*x*"];
const VALUES: [&str; 8] = ["", "x", "y", "xy", "xzy", "x*", "*", "yxz"];

fn compile(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).unwrap_or_else(|error| panic!("{error}"));
    RuleSet::compile(&document, Secret::UNSET).unwrap_or_else(|error| panic!("{error}"))
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<DescriptorPair<'a>> {
    pairs
        .iter()
        .map(|(key, value)| DescriptorPair { key: (*key).into(), value: (*value).into() })
        .collect()
}

fn matching_rules(set: &RuleSet, domain: &str, pairs: &[(&str, &str)]) -> Vec<u32> {
    let entries = entries(pairs);
    let mut facts: Facts<'_> = [("domain", domain)].into_iter().collect();
    facts.set_descriptor(&entries);
    let mut found = MatchedRules::new();
    set.match_rules(&facts, &mut found);
    found.to_vec()
}

/// How specifically a pattern such as `a=x*` matches: exactly, by the first such glob, or by the
/// key alone.
fn specificity(pattern: &str, at: usize, (key, value): (&str, &str)) -> Option<(u8, usize)> {
    let (own, wanted) = pattern.split_once('=').map_or((pattern, None), |(k, v)| (k, Some(v)));
    let wanted = match (own == key, wanted) {
        (false, _) => return None,
        (true, None) => return Some((2, 0)),
        (true, Some(wanted)) => wanted,
    };
    let glob = wanted.contains('*') && crate::condition::Glob::parse(wanted)?.matches(value);
    (wanted == value).then_some((0, 0)).or(glob.then_some((1, at)))
}

/// Narrows down the rules entry by entry, and keeps those with as many entries as the request.
fn reference_matches(rules: &[Vec<String>], pairs: &[(&str, &str)]) -> Vec<u32> {
    let mut left: Vec<usize> = (0..rules.len()).collect();
    for (depth, pair) in pairs.iter().enumerate() {
        let fit = |at: &usize| specificity(rules[*at].get(depth)?, *at, *pair);
        let Some(best) = left.iter().filter_map(fit).min() else { return Vec::new() };
        // Later rules may have the same glob; rules with equal text share a branch.
        let chosen =
            left.iter().find(|at| fit(at) == Some(best)).map(|at| rules[*at][depth].clone());
        left.retain(|at| rules[*at].get(depth) == chosen.as_ref());
    }
    left.retain(|at| rules[*at].len() == pairs.len());
    left.into_iter().map(|at| u32::try_from(at).unwrap()).collect()
}

fn descriptor() -> impl Strategy<Value = Vec<String>> {
    let entry = (prop::sample::select(&KEYS[..]), prop::sample::select(&PATTERNS[..]))
        .prop_map(|(key, pattern)| format!("{key}{pattern}"));
    prop::collection::vec(entry, 1..4)
}

fn request() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let entry = (prop::sample::select(&KEYS[..]), prop::sample::select(&VALUES[..]));
    prop::collection::vec(entry, 1..4)
}

fn document(rules: &[Vec<String>]) -> String {
    let rule = |entries: &Vec<String>| {
        format!("- {{ match: {{ domain: d, descriptor: {entries:?} }}, limit: 1/s }}\n")
    };
    format!("rules:\n{}", rules.iter().map(rule).collect::<String>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn descriptor_index_equals_linear_search(
        rules in prop::collection::vec(descriptor(), 0..30),
        requests in prop::collection::vec(request(), 40),
    ) {
        let set = compile(&document(&rules));
        for pairs in requests {
            prop_assert_eq!(matching_rules(&set, "d", &pairs), reference_matches(&rules, &pairs), "{:?} {:?}", pairs, rules);
            prop_assert_eq!(matching_rules(&set, "e", &pairs), Vec::<u32>::new());
        }
    }
}

#[test]
fn invalid_descriptor_fails_at_load() {
    let load_error = |matched: &str| {
        let source = format!("rules: [{{ id: r, match: {matched}, limit: 1/s }}]");
        let document = Document::parse("r", &source);
        let compiled = document.and_then(|document| RuleSet::compile(&document, Secret::UNSET));
        compiled.unwrap_err().to_string()
    };
    for (matched, words) in [
        ("{ descriptor: [a] }", "`domain:` with a single name beside"),
        ("{ domain: [d, e], descriptor: [a] }", "a single name beside"),
        ("{ domain: 'd*', descriptor: [a] }", "a single name beside"),
        ("{ domain: { not: d }, descriptor: [a] }", "a single name beside"),
        ("{ domain: d, descriptor: a }", "the entries in order"),
        ("{ domain: d, descriptor: [] }", "from 1 to 32"),
        ("{ domain: d, descriptor: ['=x'] }", "`key` or `key=value`"),
        ("{ domain: d, descriptor: [{ value: x }] }", "`key` is missing"),
        ("{ domain: d, descriptor: [{ key: a, values: x }] }", "`value`"),
        ("{ domain: d, descriptor: [{ key: a, value: x, shared: true }] }", "a value with a `*`"),
        (
            "{ domain: d, descriptor: [{ key: a, value: x*, shared: true }] }",
            "`key_by: descriptor`",
        ),
    ] {
        let error = load_error(matched);
        assert!(error.contains(words), "{matched}: {error}");
    }
}
