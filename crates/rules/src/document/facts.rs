//! Which facts rules may name: what every request has, what `identity` finds, what `facts` declares,
//! and what callers of the APIs bring by convention.
//!
//! A rule on any other fact would limit no request, so it is an error. A conventional fact that the
//! document says nothing of is accepted here: callers of the APIs may bring it. The server refuses
//! to start a gateway with such a rule, see [`UnsuppliedFact`].

use std::collections::HashSet;

use super::match_section::canonical_fact_name;
use super::{Document, ParsedRule};
use crate::decode::{Diagnostics, Field, nearest};
use crate::diagnostic::{FieldError, shorten};
use crate::identity::{ApiKeyIdentity, ApiKeySource, UnknownKeyPolicy};
use crate::yaml::SourceSpan;

/// Facts that every request has.
const BUILT_IN: [&str; 5] = ["ip", "method", "path", "endpoint", "host"];

/// Facts that callers of the APIs bring by convention, each with an `identity` entry to start from.
const CONVENTIONAL: [(&str, &str); 3] = [
    ("api_key", "api_key: { header: x-api-key }"),
    ("user_id", "user_id: { jwt: { key_file: jwt.pub } }"),
    ("tier", "tier: { subject: api_key, default: free }"),
];

/// Names that people use elsewhere for facts known here, and that few edits do not lead to.
const FACT_SYNONYMS: [(&str, &[&str]); 7] = [
    ("user_id", &["user", "uid", "username", "customer", "account"]),
    ("api_key", &["key", "token", "apikey", "x-api-key", "client_id"]),
    ("ip", &["address", "addr", "client", "client_ip", "ip_address", "remote_addr", "source_ip"]),
    ("endpoint", &["route", "url", "uri"]),
    ("tier", &["subscription", "package"]),
    ("method", &["verb", "http_method"]),
    ("host", &["hostname", "authority", "server_name"]),
];

/// What the command line declares about facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactDeclarations {
    /// Facts that callers of the APIs bring, in addition to those that the document declares.
    pub facts: Vec<String>,
    /// The header that carries the API key, its name in lower case; it replaces the document's.
    pub api_key_header: Option<String>,
    /// Any fact may be named: for a rule that is read without the document that it is from.
    pub any_fact: bool,
}

/// A conventional fact that an active rule names although nothing says where it comes from: no
/// request at the gateway has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsuppliedFact {
    /// The id of the rule.
    pub rule: String,
    /// The name of the fact.
    pub fact: String,
    /// The line on which the rule names it, from 1.
    pub line: usize,
}

/// A fact that a rule names, and where.
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

/// Where a problem stands, which decides what there is to write.
#[derive(Clone, Copy)]
pub(super) enum RuleOrigin {
    Document,
    CommandLine,
}

/// Reads `facts: [tenant, region]`.
pub(super) fn read(field: &Field<'_>) -> Vec<String> {
    let names = field.list().unwrap_or_default();
    names
        .iter()
        .filter_map(|name| name.non_empty_text().map(|name| canonical_fact_name(name).to_owned()))
        .collect()
}

impl Document {
    /// Adds what the command line declares.
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

    /// Notes every fact that rules name and that is not known.
    pub(super) fn check_facts(
        &self,
        rules: &[ParsedRule],
        place: RuleOrigin,
        diagnostics: &Diagnostics<'_>,
    ) {
        if self.declared.any_fact {
            return;
        }
        // The `key_by` of the document is that of many rules, and noted once.
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
                "{near}`facts: [{name}]` if callers of the APIs bring it; or \
                 `identity: {{ facts: {{ {name}: {{ header: x-{} }} }} }}` if a header carries it",
                name.to_ascii_lowercase().replace('_', "-")
            ),
            RuleOrigin::CommandLine => {
                format!("{near}`--facts {name}` beside it if callers of the APIs bring it")
            }
        })
    }

    /// The fact that was probably meant.
    fn nearest_fact(&self, fact: &str) -> Option<&str> {
        let declared = self.identity.facts.iter().map(|fact| &fact.name).chain(&self.facts);
        let known = BUILT_IN.into_iter().chain(CONVENTIONAL.map(|(name, _)| name));
        let typed = fact.to_ascii_lowercase();
        let synonym = FACT_SYNONYMS.into_iter().find(|(_, others)| others.contains(&&*typed));
        let near = nearest(fact, known.chain(declared.map(String::as_str)));
        synonym.map(|(name, _)| name).or(near)
    }

    /// Whether requests have the fact: all of them do, or the document says where it comes from.
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

    /// The conventional facts that a rule names and that nothing supplies, each once.
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

    /// What to add to the document so that requests have these facts.
    pub(crate) fn suggested_identity(&self, facts: &[UnsuppliedFact]) -> Option<String> {
        let wanted = |name: &str| facts.iter().any(|unsupplied| unsupplied.fact == name);
        // Tiers are looked up by the API key.
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

/// Rules on Envoy's domains and descriptors name entries that only Envoy's configuration knows.
fn is_for_envoy(rule: &ParsedRule) -> bool {
    rule.referenced_facts.iter().any(|named| matches!(&*named.fact, "domain" | "descriptor"))
}
