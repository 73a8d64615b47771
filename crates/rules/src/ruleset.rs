//! A rule set: all rules of a document, compiled once and immutable.

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
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use crate::condition::{
    Condition, DescriptorMatcher, EndpointPattern, FactMatcher, MatchInput, RequestEndpoint,
};
use crate::consistency::Consistency;
use crate::diagnostic::DocumentError;
use crate::document::{Document, FactReference, ParsedRule, UnsuppliedFact};
use crate::facts::Facts;
use crate::identity::IdentityConfig;
use crate::index::descriptors::DescriptorIndex;
use crate::index::{IndexEntry, RuleIndex};
use crate::key::{KeyDerivation, KeyPart};
use crate::path_normalization::PathNormalization;
use crate::records::{ExternalRecords, RecordError};
use crate::rule::{Rule, SplitPart, counter_namespace};
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
    /// The rules of the document, followed by their variants: for keys with an override, and for
    /// the parts of split rules.
    rules: Vec<Rule>,
    /// Number of rules from the document.
    document_rule_count: usize,
    overrides: OverrideTable,
    /// Whether any rule has a predecessor.
    has_predecessors: bool,
    index: RuleIndex,
    descriptors: DescriptorIndex,
    key_derivation: KeyDerivation,
    subjects: SubjectTable,
    paths: PathNormalization,
    identity: IdentityConfig,
    unsupplied: Vec<UnsuppliedFact>,
    /// An `identity` section that would supply the missing facts.
    suggested_identity: Option<String>,
    version: u64,
    serial: u64,
    /// The initial state of key hashes.
    seed: KeyHasher,
    /// The hash of a key without parts.
    global_owner: Fingerprint,
    is_inline_limit: bool,
    /// Whether several nodes share the store.
    is_shared: bool,
    /// Whether any rule has its parts counted separately.
    has_split_rules: bool,
    /// Whether any active rule replaces another. If not, matching skips the check.
    has_replacements: bool,
    extensions: RuleSetExtensions,
}

impl RuleSet {
    /// Compiles a document. Keys are hashed with the secret.
    ///
    /// # Errors
    /// All errors of the document.
    pub fn compile(document: &Document, secret: Secret) -> Result<Self, DocumentError> {
        let diagnostics = document.diagnostics();
        document.check(&diagnostics);
        document.check_regions(&diagnostics);
        diagnostics.finish()?;
        let mut rules = compile_rules(document.rules(), document.paths(), secret);
        enter_region(&mut rules, document);
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
            is_shared: false,
            has_split_rules: false,
            has_replacements: replacing,
            extensions: RuleSetExtensions::default(),
        })
    }

    /// Adds subjects and overrides that are not in the document.
    ///
    /// # Errors
    /// Every override that cannot be applied.
    pub fn with_records(mut self, records: &ExternalRecords) -> Result<Self, Vec<RecordError>> {
        self.subjects.extend(&records.subjects);
        let problems = self.apply_overrides(&records.overrides);
        self.add_split_parts();
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// The same rule set, for a store that several nodes share. The limit of each leased rule and
    /// of its variants becomes the [lending policy](crate::LeasedLimit::lending_policy), by which
    /// the store counts. Each split rule gets a [rule for each part](Rule::split_parts). Without
    /// this call, every rule is exact.
    ///
    /// A rule set that [inherits](Self::inherit_from) from one for a shared store is for a shared
    /// store, too.
    #[must_use]
    pub fn for_shared_store(mut self) -> Self {
        self.rules.iter_mut().for_each(Rule::share);
        self.is_shared = true;
        self.add_split_parts();
        self
    }

    /// Adds a rule for each part of the split rules and variants that have none yet.
    fn add_split_parts(&mut self) {
        for at in 0..self.rules.len() {
            let rule = &self.rules[at];
            let Consistency::Split(split) = rule.applied_consistency() else { continue };
            if !rule.split_parts.is_empty() {
                continue;
            }
            let part = |(number, policy): (u8, &Policy)| {
                rule.for_part(self.split_part(number, split.count()), *policy)
            };
            let parts: Vec<Rule> = (0..).zip(split.parts()).map(part).collect();
            let range = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let first = self.rules.len();
            self.rules[at].split_parts = range(first)..range(first + parts.len());
            self.rules.extend(parts);
            self.has_split_rules = true;
        }
    }

    /// A part of a counter that is divided into `count` parts. Other numbers of parts have other
    /// counters.
    fn split_part(&self, number: u8, count: u32) -> SplitPart {
        let mut hasher = self.seed;
        hasher.write_part(b"split");
        hasher.write_part(&count.to_le_bytes());
        hasher.write_part(&[number]);
        SplitPart { number, hash: hasher.finish() }
    }

    /// Whether the hashes of its counters may be shown to users.
    #[must_use]
    pub const fn has_shareable_keys(&self) -> bool {
        self.seed.is_shareable()
    }

    /// The hash of the parts of a key, which identifies the owner of the counter.
    pub(crate) fn owner_fingerprint(&self, parts: &[KeyPart], facts: &Facts<'_>) -> Fingerprint {
        self.key_derivation.hash_parts(self.seed, parts, facts).finish()
    }

    /// The owner of counters that all requests share.
    pub(crate) const fn global_owner(&self) -> Fingerprint {
        self.global_owner
    }

    /// A hasher for a new key.
    pub(crate) const fn key_seed(&self) -> KeyHasher {
        self.seed
    }

    /// Sets the version, for rules whose versions the control plane assigns.
    #[must_use]
    pub fn with_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// The rules in document order, including disabled ones.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules[..self.document_rule_count]
    }

    /// Whether any rule carries over usage from before its algorithm, window or number of parts
    /// changed.
    #[must_use]
    pub const fn has_predecessors(&self) -> bool {
        self.has_predecessors
    }

    /// Whether any rule has its parts counted separately.
    #[must_use]
    pub const fn has_split_rules(&self) -> bool {
        self.has_split_rules
    }

    /// The rule with this index, which may be a variant for keys with an override or for a part.
    #[must_use]
    pub fn get(&self, at: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(at).ok()?)
    }

    /// The rules of the document and all variants.
    #[must_use]
    pub fn rules_and_variants(&self) -> &[Rule] {
        &self.rules
    }

    /// How facts are extracted from requests.
    #[must_use]
    pub const fn identity(&self) -> &IdentityConfig {
        &self.identity
    }

    /// The conventional facts that active rules name although nothing supplies them.
    #[must_use]
    pub fn unsupplied_facts(&self) -> &[UnsuppliedFact] {
        &self.unsupplied
    }

    /// The `identity` entries that would supply those facts.
    #[must_use]
    pub fn suggested_identity(&self) -> Option<&str> {
        self.suggested_identity.as_deref()
    }

    /// The version assigned by the control plane, or else a hash of the document's text, which is
    /// equal on all nodes with the same text.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// A number that identifies the rule set within this process; later rule sets have higher ones.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// Data that other components attach to the rule set.
    #[must_use]
    pub const fn extensions(&self) -> &RuleSetExtensions {
        &self.extensions
    }

    /// Adds the facts of known subjects and the default tier, and normalizes paths. Existing facts
    /// are kept, except an unknown API key if unknown keys are counted by address.
    pub fn enrich<'a>(&'a self, facts: &mut Facts<'a>) {
        self.paths.fold_facts(facts);
        self.subjects.enrich(facts);
    }

    /// Calls a function with [enriched](Self::enrich) facts. Copies the facts only if enriching
    /// would change them.
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

    /// The active rules that apply to a request, in document order, without those that other
    /// matching rules replace.
    pub fn match_rules(&self, facts: &Facts<'_>, found: &mut MatchedRules) {
        self.find_governing(facts, found);
        if self.has_replacements {
            let replaced = self.replaced_by(found);
            found.retain(|at| !replaced.contains(at));
        }
    }

    /// The rules that do not apply to a call of several requests, because a rule that matches one
    /// of the requests replaces them. If no rule replaces another, the requests are not evaluated.
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

    /// The endpoint of a request: the declared pattern that matches, or else the path.
    #[must_use]
    pub fn endpoint(&self, facts: &Facts<'_>) -> Option<String> {
        if facts.get("path").is_none() && facts.get("endpoint").is_none() {
            return None;
        }
        Some(self.key_derivation.describe(&KeyPart::Endpoint, facts).1)
    }

    /// The declared pattern that the request's path matches, without the method. The facts need not
    /// be enriched.
    #[must_use]
    pub fn path_pattern(&self, facts: &Facts<'_>) -> Option<&str> {
        let RequestEndpoint { method, path } = RequestEndpoint::from_facts(facts);
        self.key_derivation.matching_pattern(method, &self.paths.fold_path(path?))
    }

    /// The text that identifies the client with this address: the address, or the network of an
    /// IPv6 address (`ipv6_prefix`).
    #[must_use]
    pub fn client_name(&self, ip: IpAddr) -> String {
        self.key_derivation.client_name(ip)
    }

    /// Takes over the state of the previous rule set. An unchanged policy keeps its effective time;
    /// a new or changed one takes effect at `now`.
    #[must_use]
    pub fn inherit_from(mut self, previous: &Self, now: Timestamp) -> Self {
        // The policies must be compared as the store counts them.
        if previous.is_shared {
            self = self.for_shared_store();
        }
        let known: HashMap<&str, &Rule> =
            previous.rules().iter().map(|rule| (rule.id(), rule)).collect();
        let listed = self.document_rule_count;
        for rule in &mut self.rules[..listed] {
            let before = known.get(rule.id()).copied();
            rule.inherit_from(before, previous, now);
            rule.split_parts = 0..0;
        }
        self.has_predecessors = self.rules().iter().any(|rule| rule.predecessor().is_some());
        // Removes all variants; the parts count by the new policies.
        self.inherit_overrides(previous, now);
        self.add_split_parts();
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
    let indexes: HashMap<&str, u32> =
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
                consistency: rule.consistency.clone(),
                regional: None,
                is_shared: false,
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
                    .filter_map(|id| indexes.get(id.value.as_str()).copied())
                    .collect(),
                split_parts: 0..0,
                split_part: None,
            }
        })
        .collect()
}

/// Limits the rules to the shares of this node's region.
fn enter_region(rules: &mut [Rule], document: &Document) {
    let Some(region) = document.region() else { return };
    // Rules without a limit are not compiled, as in `compile_rules`.
    let typed = document.rules().iter().filter(|rule| rule.limit.is_some());
    for (rule, typed) in rules.iter_mut().zip(typed) {
        if let Some(regions) = &typed.regions {
            rule.enter_region(&regions.shares, region);
        }
    }
}

/// The parts of a rule's key. A descriptor part omits the values that share a counter.
fn compiled_key_parts(rule: &ParsedRule) -> Box<[KeyPart]> {
    let shared = rule.descriptor().map_or(0, DescriptorMatcher::shared_mask);
    let part = |part: &KeyPart| match part {
        KeyPart::Descriptor { .. } => KeyPart::Descriptor { shared },
        part => part.clone(),
    };
    rule.parts.iter().map(part).collect()
}

/// Returns one shared list for all rules with equal key parts.
fn intern_parts(parts: Box<[KeyPart]>, lists: &mut HashSet<Arc<[KeyPart]>>) -> Arc<[KeyPart]> {
    if let Some(known) = lists.get(&*parts) {
        return Arc::clone(known);
    }
    let parts: Arc<[KeyPart]> = parts.into();
    lists.insert(Arc::clone(&parts));
    parts
}

fn find_unsupplied_facts(document: &Document, rules: &[Rule]) -> Vec<UnsuppliedFact> {
    // Rules without a limit are not compiled, as in `compile_rules`.
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
