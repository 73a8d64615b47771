//! The facts that rules may name: those of every request, those that `identity` extracts, those
//! that `facts` declares, and those that API callers send by convention.
//!
//! A rule on any other fact would limit no request, so it is an error. A conventional fact that the
//! document does not mention is accepted here, because API callers may send it. The server refuses
//! to start a gateway with such a rule, see [`UnsuppliedFact`].

use std::collections::HashSet;

use super::match_section::canonical_fact_name;
use super::{Document, ParsedRule};
use crate::decode::{Diagnostics, Field, nearest};
use crate::diagnostic::{FieldError, shorten};
use crate::identity::{ApiKeyIdentity, ApiKeySource, UnknownKeyPolicy};
use crate::yaml::SourceSpan;

/// Facts of every request.
const BUILT_IN: [&str; 5] = ["ip", "method", "path", "endpoint", "host"];

/// Facts that API callers send by convention, each with an example for `identity`.
const CONVENTIONAL: [(&str, &str); 3] = [
    ("api_key", "api_key: { header: x-api-key }"),
    ("user_id", "user_id: { jwt: { key_file: jwt.pub } }"),
    ("tier", "tier: { subject: api_key, default: free }"),
];

/// Common other names of known facts, which the edit distance does not find.
const FACT_SYNONYMS: [(&str, &[&str]); 7] = [
    ("user_id", &["user", "uid", "username", "customer", "account"]),
    ("api_key", &["key", "token", "apikey", "x-api-key", "client_id"]),
    ("ip", &["address", "addr", "client", "client_ip", "ip_address", "remote_addr", "source_ip"]),
    ("endpoint", &["route", "url", "uri"]),
    ("tier", &["subscription", "package"]),
    ("method", &["verb", "http_method"]),
    ("host", &["hostname", "authority", "server_name"]),
];

/// Facts declared on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactDeclarations {
    /// Facts that API callers send, in addition to those that the document declares.
    pub facts: Vec<String>,
    /// The header that contains the API key, in lower case; replaces the document's setting.
    pub api_key_header: Option<String>,
    /// Accepts any fact and any region: for a rule that is read without its document.
    pub any_fact: bool,
}

/// A conventional fact that an active rule names although nothing supplies it: no request at the
/// gateway has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsuppliedFact {
    /// The id of the rule.
    pub rule: String,
    /// The name of the fact.
    pub fact: String,
    /// The line on which the rule names it, from 1.
    pub line: usize,
}

/// A fact that a rule names, and the location.
#[derive(Clone, Debug)]
pub(crate) struct FactReference {
    pub(crate) fact: String,
    pub(crate) span: SourceSpan,
    pub(crate) path: String,
}

impl FactReference {
    pub(super) fn new(fact: &str, span: SourceSpan, path: &str) -> Self {
        Self { fact: fact.to_owned(), span, path: path.to_owned() }
    }
}

/// The origin of a rule, which determines the hints in its errors.
#[derive(Clone, Copy)]
pub(super) enum RuleOrigin {
    Document,
    CommandLine,
}

/// Decodes `facts: [tenant, region]`.
pub(super) fn read(field: &Field<'_>) -> Vec<String> {
    let names = field.list().unwrap_or_default();
    names
        .iter()
        .filter_map(|name| name.non_empty_text().map(|name| canonical_fact_name(name).to_owned()))
        .collect()
}

impl Document {
    /// Adds the declarations of the command line.
    pub(super) fn apply_declarations(&mut self, declared: &FactDeclarations) {
        self.facts.extend(declared.facts.iter().map(|name| canonical_fact_name(name).to_owned()));
        if let Some(header) = &declared.api_key_header {
            let unknown = self.identity.api_key.as_ref().map(|key| key.unknown);
            self.identity.api_key = Some(ApiKeyIdentity {
                source: ApiKeySource::Header(header.clone()),
                unknown: unknown.unwrap_or(UnknownKeyPolicy::Itself),
            });
        }
        self.declared = declared.clone();
    }

    /// Reports every unknown fact that rules name.
    pub(super) fn check_facts(
        &self,
        rules: &[ParsedRule],
        place: RuleOrigin,
        diagnostics: &Diagnostics<'_>,
    ) {
        if self.declared.any_fact {
            return;
        }
        // Many rules may share the document's `key_by`; report it once.
        let mut noted = HashSet::new();
        for named in
            rules.iter().filter(|rule| !is_for_envoy(rule)).flat_map(|rule| &rule.referenced_facts)
        {
            let FactReference { fact, span, path } = named;
            let known = self.supplies_fact(fact) || conventional_identity(fact).is_some();
            if !known && noted.insert((span.line, span.column, fact)) {
                diagnostics.report(*span, path, self.unknown_fact_error(fact, place));
            }
        }
    }

    fn unknown_fact_error(&self, fact: &str, place: RuleOrigin) -> FieldError {
        let error = FieldError::new("no request has this fact").with_found(fact);
        let near = self.nearest_fact(fact).map(|near| format!("`{near}`; or ")).unwrap_or_default();
        let name = shorten(fact);
        error.with_hint(match place {
            RuleOrigin::Document => format!(
                "{near}`facts: [{name}]` if API callers send it; or \
                 `identity: {{ facts: {{ {name}: {{ header: x-{} }} }} }}` if a header carries it",
                name.to_ascii_lowercase().replace('_', "-")
            ),
            RuleOrigin::CommandLine => {
                format!("{near}`--facts {name}` beside it if API callers send it")
            }
        })
    }

    /// The fact that the user probably meant.
    fn nearest_fact(&self, fact: &str) -> Option<&str> {
        let declared = self.identity.facts.iter().map(|fact| &fact.name).chain(&self.facts);
        let known = BUILT_IN.into_iter().chain(CONVENTIONAL.map(|(name, _)| name));
        let typed = fact.to_ascii_lowercase();
        let synonym = FACT_SYNONYMS.into_iter().find(|(_, others)| others.contains(&&*typed));
        let near = nearest(fact, known.chain(declared.map(String::as_str)));
        synonym.map(|(name, _)| name).or(near)
    }

    /// Whether requests have the fact: either all of them do, or the document names its source.
    fn supplies_fact(&self, fact: &str) -> bool {
        let identity = &self.identity;
        BUILT_IN.contains(&fact)
            || self.facts.iter().any(|known| known == fact)
            || identity.facts.iter().any(|known| known.name == fact)
            || match fact {
                "api_key" => identity.api_key.is_some(),
                "user_id" => identity.user_id.is_some(),
                "tier" => identity.tier.is_some(),
                _ => false,
            }
    }

    /// The conventional facts that a rule names and nothing supplies, without duplicates.
    pub(crate) fn unsupplied_facts<'r>(&self, rule: &'r ParsedRule) -> Vec<&'r FactReference> {
        let mut unsupplied: Vec<&FactReference> = Vec::new();
        if rule.active && !is_for_envoy(rule) {
            for named in &rule.referenced_facts {
                let known = unsupplied.iter().any(|known| known.fact == named.fact);
                if !known && !self.supplies_fact(&named.fact) {
                    unsupplied.push(named);
                }
            }
        }
        unsupplied
    }

    /// An `identity` section that would supply these facts.
    pub(crate) fn suggested_identity(&self, facts: &[UnsuppliedFact]) -> Option<String> {
        let wanted = |name: &str| facts.iter().any(|unsupplied| unsupplied.fact == name);
        // Tiers are looked up by API key.
        let key = wanted("tier") && self.identity.api_key.is_none();
        let lines = CONVENTIONAL.into_iter();
        let lines = lines.filter(|(name, _)| wanted(name) || (*name == "api_key" && key));
        let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
        (!lines.is_empty()).then(|| format!("identity: {{ {} }}", lines.join(", ")))
    }
}

fn conventional_identity(fact: &str) -> Option<&'static str> {
    CONVENTIONAL.into_iter().find(|(name, _)| *name == fact).map(|(_, line)| line)
}

/// Rules on Envoy's domains and descriptors name entries that only Envoy's configuration defines.
fn is_for_envoy(rule: &ParsedRule) -> bool {
    rule.referenced_facts.iter().any(|named| matches!(&*named.fact, "domain" | "descriptor"))
}
