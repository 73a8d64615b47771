//! Helpers for tests of the public API.

use tidegate_core::key::Secret;
use tidegate_rules::{Document, Facts, MatchedRules, RuleSet};

/// Compiles a valid document.
pub(crate) fn compile(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).unwrap_or_else(|error| panic!("{error}"));
    RuleSet::compile(&document, Secret::UNSET).unwrap_or_else(|error| panic!("{error}"))
}

/// The errors of a document, as shown to users.
pub(crate) fn error_text(source: &str) -> String {
    let compiled = Document::parse("rules.yaml", source)
        .and_then(|document| RuleSet::compile(&document, Secret::UNSET));
    compiled.expect_err("the document should be rejected").to_string()
}

/// Facts from name-value pairs.
pub(crate) fn facts<'a>(pairs: &[(&'a str, &'a str)]) -> Facts<'a> {
    pairs.iter().copied().collect()
}

/// The ids of the rules that apply to a request.
pub(crate) fn matched_ids<'a>(set: &'a RuleSet, pairs: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let mut facts = facts(pairs);
    set.enrich(&mut facts);
    let mut found = MatchedRules::new();
    set.match_rules(&facts, &mut found);
    found.iter().map(|at| set.rules()[*at as usize].id()).collect()
}
