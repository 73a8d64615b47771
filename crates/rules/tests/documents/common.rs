//! What the tests of the public face share.

use tidegate_core::key::Secret;
use tidegate_rules::{Document, Facts, MatchedRules, RuleSet};

/// Compiles a document that must be well.
pub(crate) fn compile(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).unwrap_or_else(|error| panic!("{error}"));
    RuleSet::compile(&document, Secret::UNSET).unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong with a document, as a user sees it.
pub(crate) fn error_text(source: &str) -> String {
    let compiled = Document::parse("rules.yaml", source)
        .and_then(|document| RuleSet::compile(&document, Secret::UNSET));
    compiled.expect_err("the document should be refused").to_string()
}

/// Facts from pairs.
pub(crate) fn facts<'a>(pairs: &[(&'a str, &'a str)]) -> Facts<'a> {
    pairs.iter().copied().collect()
}

/// The ids of the rules that govern a request.
pub(crate) fn matched_ids<'a>(set: &'a RuleSet, pairs: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let mut facts = facts(pairs);
    set.enrich(&mut facts);
    let mut found = MatchedRules::new();
    set.match_rules(&facts, &mut found);
    found.iter().map(|at| set.rules()[*at as usize].id()).collect()
}
