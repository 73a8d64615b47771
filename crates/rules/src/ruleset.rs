//! A rule set: all rules of a document, compiled once and never changed after.

mod client_counters;
mod derived_id;
mod extensions;
mod inline_limit;
mod overrides;
mod predecessor;
mod subjects;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::Timestamp;

use crate::condition::{Condition, DescriptorMatcher, EndpointPattern, FactMatcher, MatchInput};
use crate::diagnostic::DocumentError;
use crate::document::{Document, FactReference, ParsedRule, UnsuppliedFact};
use crate::facts::Facts;
use crate::identity::IdentityConfig;
use crate::index::descriptors::DescriptorIndex;
use crate::index::{IndexEntry, RuleIndex};
use crate::key::{KeyDerivation, KeyPart};
use crate::path_normalization::PathNormalization;
use crate::records::{ExternalRecords, RecordError};
use crate::rule::{Rule, counter_namespace};
pub use client_counters::ClientCounter;
pub use extensions::{ExtensionKey, RuleSetExtensions};
pub use inline_limit::InlineLimit;
use overrides::OverrideTable;
pub use predecessor::RulePredecessor;
use subjects::SubjectTable;

/// Indexes of rules in document order.
pub type MatchedRules = SmallVec<[u32; 16]>;

/// An immutable snapshot of all rules.
#[derive(Debug)]
pub struct RuleSet {
    /// The rules of the document, and their variants for keys with numbers of their own.
    rules: Vec<Rule>,
    /// How many of them are the document's.
    document_rule_count: usize,
    overrides: OverrideTable,
    /// Whether a rule remembers what it was.
    has_predecessors: bool,
    index: RuleIndex,
    descriptors: DescriptorIndex,
    key_derivation: KeyDerivation,
    subjects: SubjectTable,
    paths: PathNormalization,
    identity: IdentityConfig,
    unsupplied: Vec<UnsuppliedFact>,
    /// The `identity` that would supply those.
    suggested_identity: Option<String>,
    version: u64,
    serial: u64,
    /// The beginning of keys that no rule of the document has.
    seed: KeyHasher,
    /// What it says of a key without parts.
    global_owner: Fingerprint,
    is_inline_limit: bool,
    /// Whether any rule replaces another: most documents need not look.
    has_replacements: bool,
    extensions: RuleSetExtensions,
}

impl RuleSet {
    /// Compiles a document; keys are hashed under the secret.
    ///
    /// # Errors
    /// Everything that is wrong with the document, at once.
    pub fn compile(document: &Document, secret: Secret) -> Result<Self, DocumentError> {
        let diagnostics = document.diagnostics();
        document.check(&diagnostics);
        diagnostics.finish()?;
        let rules = compile_rules(document.rules(), document.paths(), secret);
        let mut descriptors = DescriptorIndex::default();
        let active = (0_u32..).zip(&rules).filter(|(_, rule)| rule.active);
        let others = active.filter(|(at, rule)| !descriptors.insert(*at, &rule.conditions));
        let index = RuleIndex::build(
            others.map(|(at, rule)| IndexEntry::new(at, &rule.conditions)).collect(),
        );
        let declared = rules.iter().flat_map(|rule| &*rule.conditions).flat_map(endpoint_patterns);
        let prefix = document.identity().ip.ipv6_prefix;
        let endpoints: Vec<EndpointPattern> = document
            .endpoints()
            .iter()
            .map(|pattern| pattern.with_normalized_paths(document.paths()))
            .collect();
        let keying = KeyDerivation::new(prefix, declared.chain(&endpoints));
        let subjects = SubjectTable::new(document, secret);
        let unsupplied = find_unsupplied_facts(document, &rules);
        let identity_to_add = document.suggested_identity(&unsupplied);
        let (identity, version) = (document.identity().clone(), document_version(document));
        let seed = KeyHasher::new(secret);
        let replacing = rules.iter().any(|rule| rule.active && !rule.replaces.is_empty());
        let (listed, overrides) = (rules.len(), OverrideTable::default());
        Ok(Self {
            rules,
            document_rule_count: listed,
            overrides,
            has_predecessors: false,
            index,
            descriptors,
            key_derivation: keying,
            subjects,
            paths: document.paths(),
            identity,
            unsupplied,
            suggested_identity: identity_to_add,
            version,
            serial: next_serial(),
            seed,
            global_owner: seed.finish(),
            is_inline_limit: false,
            has_replacements: replacing,
            extensions: RuleSetExtensions::default(),
        })
    }

    /// The same rules with what is known besides the document.
    ///
    /// # Errors
    /// Every override that cannot come into force.
    pub fn with_records(mut self, records: &ExternalRecords) -> Result<Self, Vec<RecordError>> {
        self.subjects.extend(&records.subjects);
        let problems = self.apply_overrides(&records.overrides);
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Whether the hashes that name its counters may be shown.
    pub(crate) const fn has_shareable_keys(&self) -> bool {
        self.seed.is_shareable()
    }

    /// Whose counters: the hash of the parts of a key.
    pub(crate) fn owner_fingerprint(&self, parts: &[KeyPart], facts: &Facts<'_>) -> Fingerprint {
        self.key_derivation.hash_parts(self.seed, parts, facts).finish()
    }

    /// Who counts where nobody is told apart.
    pub(crate) const fn global_owner(&self) -> Fingerprint {
        self.global_owner
    }

    /// A hasher that has seen nothing of a key.
    pub(crate) const fn key_seed(&self) -> KeyHasher {
        self.seed
    }

    /// The same rules under a version of whoever keeps them.
    #[must_use]
    pub fn with_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// The rules in document order, also those that are not active.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules[..self.document_rule_count]
    }

    /// Whether a rule keeps what was used before its algorithm or window changed.
    #[must_use]
    pub const fn has_predecessors(&self) -> bool {
        self.has_predecessors
    }

    /// The rule at a place, which may be a variant of one for some keys.
    #[must_use]
    pub fn get(&self, at: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(at).ok()?)
    }

    /// Those rules and all their variants.
    #[must_use]
    pub fn rules_and_variants(&self) -> &[Rule] {
        &self.rules
    }

    /// How requests become facts.
    #[must_use]
    pub const fn identity(&self) -> &IdentityConfig {
        &self.identity
    }

    /// The conventional facts that active rules name although nothing says where they come from.
    #[must_use]
    pub fn unsupplied_facts(&self) -> &[UnsuppliedFact] {
        &self.unsupplied
    }

    /// The `identity` entries that would supply those facts.
    #[must_use]
    pub fn suggested_identity(&self) -> Option<&str> {
        self.suggested_identity.as_deref()
    }

    /// A hash of the document's text, so that the same text has the same version on every node, or the number
    /// that whoever keeps the rules gave them.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Which rule set of this process it is: each has its own, later ones a higher one.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// What others keep beside it.
    #[must_use]
    pub const fn extensions(&self) -> &RuleSetExtensions {
        &self.extensions
    }

    /// Adds what follows from the facts: what `subjects` know, the default tier; and puts paths into
    /// the form in which they are compared. Facts that are
    /// there already are kept, except an unknown API key that is to count as its address.
    pub fn enrich<'a>(&'a self, facts: &mut Facts<'a>) {
        self.paths.fold_facts(facts);
        self.subjects.enrich(facts);
    }

    /// Does something with facts that are [completed](Self::enrich) for it. They are not copied where there is
    /// nothing to complete.
    pub fn with_enriched_facts<T>(
        &self,
        facts: &Facts<'_>,
        then: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        if self.subjects.is_noop() && self.paths.is_exact() {
            return then(facts);
        }
        let mut completed = facts.borrowed();
        self.enrich(&mut completed);
        then(&completed)
    }

    /// The active rules that govern a request, in document order, without those that others of them
    /// replace.
    pub fn match_rules(&self, facts: &Facts<'_>, found: &mut MatchedRules) {
        self.find_governing(facts, found);
        if self.has_replacements {
            let replaced = self.replaced_by(found);
            found.retain(|at| !replaced.contains(at));
        }
    }

    /// The rules that do not apply to a call of several requests, because one that governs any of them
    /// replaces them. Mostly none, and then the requests are not looked at.
    #[must_use]
    pub fn replaced_rules<'f, 'a: 'f>(
        &self,
        call: impl IntoIterator<Item = &'f Facts<'a>>,
    ) -> MatchedRules {
        let mut replaced = MatchedRules::new();
        if self.has_replacements {
            let mut found = MatchedRules::new();
            for facts in call {
                self.with_enriched_facts(facts, |facts| self.find_governing(facts, &mut found));
                replaced.extend(self.replaced_by(&found));
            }
        }
        replaced
    }

    fn replaced_by(&self, found: &MatchedRules) -> MatchedRules {
        let rules = found.iter().filter_map(|at| self.get(*at));
        rules.flat_map(|rule| rule.replaces.iter().copied()).collect()
    }

    fn find_governing(&self, facts: &Facts<'_>, found: &mut MatchedRules) {
        let request = MatchInput::new(facts);
        found.clear();
        self.index.candidates(&request, found);
        if !facts.descriptor().is_empty() {
            found.extend_from_slice(self.descriptors.find(facts.get("domain"), facts.descriptor()));
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|at| self.get(*at).is_some_and(|rule| rule.governs(&request)));
    }

    /// The endpoint of a request: its pattern if one was declared, or else its path.
    #[must_use]
    pub fn endpoint(&self, facts: &Facts<'_>) -> Option<String> {
        if facts.get("path").is_none() && facts.get("endpoint").is_none() {
            return None;
        }
        Some(self.key_derivation.describe(&KeyPart::Endpoint, facts).1)
    }

    /// The declared pattern that the request's path matches, without the method.
    #[must_use]
    pub fn path_pattern(&self, facts: &Facts<'_>) -> Option<&str> {
        self.key_derivation.path_pattern(facts)
    }

    /// The client that an address belongs to, as text: the address, or the network of an IPv6
    /// address (`ipv6_prefix`).
    #[must_use]
    pub fn client_name(&self, ip: IpAddr) -> String {
        self.key_derivation.client_name(ip)
    }

    /// The same rules as the successors of others: a policy that did not change keeps the instant
    /// since when it is in force, a new or changed one is in force from `now`.
    #[must_use]
    pub fn inherit_from(mut self, previous: &Self, now: Timestamp) -> Self {
        let known: HashMap<&str, &Rule> =
            previous.rules().iter().map(|rule| (rule.id(), rule)).collect();
        let listed = self.document_rule_count;
        for rule in &mut self.rules[..listed] {
            let before = known.get(rule.id()).copied();
            rule.inherit_from(before, now);
        }
        self.has_predecessors = self.rules().iter().any(|rule| rule.predecessor().is_some());
        self.inherit_overrides(previous, now);
        self
    }

    pub(crate) const fn key_derivation(&self) -> &KeyDerivation {
        &self.key_derivation
    }
}

impl std::ops::Index<u32> for RuleSet {
    type Output = Rule;

    fn index(&self, at: u32) -> &Rule {
        &self.rules[at as usize]
    }
}

fn compile_rules(typed: &[ParsedRule], paths: PathNormalization, secret: Secret) -> Vec<Rule> {
    let mut taken: HashSet<String> =
        typed.iter().filter_map(|rule| rule.id.as_ref()).map(|id| id.value.clone()).collect();
    let complete = typed.iter().filter_map(|rule| Some((rule, rule.limit?)));
    let ids = (0_u32..).zip(complete.clone());
    let mut lists: HashSet<Arc<[KeyPart]>> = HashSet::new();
    let places: HashMap<&str, u32> =
        ids.filter_map(|(at, (rule, _))| Some((rule.id.as_ref()?.value.as_str(), at))).collect();
    complete
        .map(|(rule, limit)| {
            let conditions: Arc<[Condition]> =
                rule.conditions.iter().map(|condition| condition.value.clone()).collect();
            let id = match &rule.id {
                Some(id) => id.value.clone(),
                None => derived_id::derive_id(&conditions, &rule.parts, &limit, &mut taken),
            };
            let conditions = match paths.is_exact() {
                true => conditions,
                false => conditions
                    .iter()
                    .map(|condition| condition.with_normalized_paths(paths))
                    .collect(),
            };
            Rule {
                namespace: counter_namespace(secret, &id, &limit, rule.generation),
                id: id.into(),
                description: rule.description.clone(),
                active: rule.active,
                limit,
                cost: rule.cost.clone(),
                mode: rule.mode,
                on_fail: rule.on_fail,
                charge: rule.charge,
                ban: rule.ban,
                on_change: rule.on_change,
                generation: rule.generation,
                predecessor: None,
                conditions,
                parts: intern_parts(compiled_key_parts(rule), &mut lists),
                replaces: rule
                    .replaces
                    .iter()
                    .filter_map(|id| places.get(id.value.as_str()).copied())
                    .collect(),
            }
        })
        .collect()
}

/// The parts of a rule's key; of a descriptor those that all its values share are left out.
fn compiled_key_parts(rule: &ParsedRule) -> Box<[KeyPart]> {
    let shared = rule.descriptor().map_or(0, DescriptorMatcher::shared_mask);
    let part = |part: &KeyPart| match part {
        KeyPart::Descriptor { .. } => KeyPart::Descriptor { shared },
        part => part.clone(),
    };
    rule.parts.iter().map(part).collect()
}

/// The same list for all rules that count by the same.
fn intern_parts(parts: Box<[KeyPart]>, lists: &mut HashSet<Arc<[KeyPart]>>) -> Arc<[KeyPart]> {
    if let Some(known) = lists.get(&*parts) {
        return Arc::clone(known);
    }
    let parts: Arc<[KeyPart]> = parts.into();
    lists.insert(Arc::clone(&parts));
    parts
}

fn find_unsupplied_facts(document: &Document, rules: &[Rule]) -> Vec<UnsuppliedFact> {
    // What has no limit is not compiled, as in `compile_rules`.
    let typed = document.rules().iter().filter(|rule| rule.limit.is_some());
    let unsupplied = |(typed, rule): (_, &Rule)| {
        let of_rule = |named: &FactReference| UnsuppliedFact {
            rule: rule.id().to_owned(),
            fact: named.fact.clone(),
            line: named.span.line,
        };
        document.unsupplied_facts(typed).into_iter().map(of_rule).collect::<Vec<_>>()
    };
    typed.zip(rules).flat_map(unsupplied).collect()
}

fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn endpoint_patterns(condition: &Condition) -> &[EndpointPattern] {
    match &condition.matcher {
        FactMatcher::Endpoint(any) => any,
        _ => &[],
    }
}

fn document_version(document: &Document) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(document.source().as_bytes());
    document.shorthands().iter().for_each(|text| hasher.write_part(text.as_bytes()));
    let header = document.declared().api_key_header.as_ref();
    header.into_iter().for_each(|name| hasher.write_part(name.as_bytes()));
    hasher.finish().lo
}

#[cfg(test)]
mod tests;
