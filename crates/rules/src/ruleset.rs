//! A rule set: all rules of a document, compiled once and never changed after.

mod beside;
mod brought;
mod carried;
mod client;
mod name;
mod overrides;
mod subjects;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::Timestamp;

use crate::condition::{Condition, Descriptor, Pattern, Request, Test};
use crate::document::{Document, NamedFact, TypedRule, UnsuppliedFact};
use crate::facts::Facts;
use crate::identity::Identity;
use crate::index::descriptors::Descriptors;
use crate::index::{Filing, Index};
use crate::key::{KeyPart, Keying};
use crate::paths::Paths;
use crate::problem::Problems;
use crate::records::{RecordProblem, Records};
use crate::rule::{Rule, namespace};
pub use beside::{Beside, Owner};
pub use brought::BroughtLimit;
pub use carried::Predecessor;
pub use client::ClientCounter;
use overrides::Overrides;
use subjects::Subjects;

/// Indexes of rules in document order.
pub type Matches = SmallVec<[u32; 16]>;

/// An immutable snapshot of all rules.
#[derive(Debug)]
pub struct RuleSet {
    /// The rules of the document, and their variants for keys with numbers of their own.
    rules: Vec<Rule>,
    /// How many of them are the document's.
    listed: usize,
    overrides: Overrides,
    /// Whether a rule remembers what it was.
    carries: bool,
    index: Index,
    descriptors: Descriptors,
    keying: Keying,
    subjects: Subjects,
    paths: Paths,
    identity: Identity,
    unsupplied: Vec<UnsuppliedFact>,
    /// The `identity` that would supply those.
    identity_to_add: Option<String>,
    version: u64,
    serial: u64,
    /// The beginning of keys that no rule of the document has.
    seed: KeyHasher,
    /// What it says of a key without parts.
    everyone: Fingerprint,
    brought: bool,
    /// Whether any rule replaces another: most documents need not look.
    replacing: bool,
    beside: Beside,
}

impl RuleSet {
    /// Compiles a document; keys are hashed under the secret.
    ///
    /// # Errors
    /// Everything that is wrong with the document, at once.
    pub fn compile(document: &Document, secret: Secret) -> Result<Self, Problems> {
        let findings = document.findings();
        document.check(&findings);
        findings.finish()?;
        let rules = compile_rules(document.rules(), document.paths(), secret);
        let mut descriptors = Descriptors::default();
        let active = (0_u32..).zip(&rules).filter(|(_, rule)| rule.active);
        let others = active.filter(|(at, rule)| !descriptors.file(*at, &rule.conditions));
        let index =
            Index::build(others.map(|(at, rule)| Filing::new(at, &rule.conditions)).collect());
        let declared = rules.iter().flat_map(|rule| &*rule.conditions).flat_map(patterns);
        let prefix = document.identity().ip.ipv6_prefix;
        let endpoints: Vec<Pattern> =
            document.endpoints().iter().map(|pattern| pattern.under(document.paths())).collect();
        let keying = Keying::new(prefix, declared.chain(&endpoints));
        let subjects = Subjects::new(document, secret);
        let unsupplied = unsupplied(document, &rules);
        let identity_to_add = document.identity_to_add(&unsupplied);
        let (identity, version) = (document.identity().clone(), version(document));
        let seed = KeyHasher::new(secret);
        let replacing = rules.iter().any(|rule| rule.active && !rule.replaces.is_empty());
        let (listed, overrides) = (rules.len(), Overrides::default());
        Ok(Self {
            rules,
            listed,
            overrides,
            carries: false,
            index,
            descriptors,
            keying,
            subjects,
            paths: document.paths(),
            identity,
            unsupplied,
            identity_to_add,
            version,
            serial: next_serial(),
            seed,
            everyone: seed.finish(),
            brought: false,
            replacing,
            beside: Beside::default(),
        })
    }

    /// The same rules with what is known besides the document.
    ///
    /// # Errors
    /// Every override that cannot come into force.
    pub fn with_records(mut self, records: &Records) -> Result<Self, Vec<RecordProblem>> {
        self.subjects.extend(&records.subjects);
        let problems = self.override_with(&records.overrides);
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Whether the hashes that name its counters may be shown.
    pub(crate) const fn shows_keys(&self) -> bool {
        self.seed.may_be_seen()
    }

    /// Whose counters: the hash of the parts of a key.
    pub(crate) fn owner(&self, parts: &[KeyPart], facts: &Facts<'_>) -> Fingerprint {
        self.keying.absorbed(self.seed, parts, facts).finish()
    }

    /// Who counts where nobody is told apart.
    pub(crate) const fn everyone(&self) -> Fingerprint {
        self.everyone
    }

    /// A hasher that has seen nothing of a key.
    pub(crate) const fn seed(&self) -> KeyHasher {
        self.seed
    }

    /// The same rules under a version of whoever keeps them.
    #[must_use]
    pub fn numbered(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// The rules in document order, also those that are not active.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules[..self.listed]
    }

    /// Whether a rule keeps what was used before its algorithm or window changed.
    #[must_use]
    pub const fn carries(&self) -> bool {
        self.carries
    }

    /// The rule at a place, which may be a variant of one for some keys.
    #[must_use]
    pub fn get(&self, at: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(at).ok()?)
    }

    /// Those rules and all their variants.
    #[must_use]
    pub fn with_variants(&self) -> &[Rule] {
        &self.rules
    }

    /// How requests become facts.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The conventional facts that active rules name although nothing says where they come from.
    #[must_use]
    pub fn unsupplied_facts(&self) -> &[UnsuppliedFact] {
        &self.unsupplied
    }

    /// The `identity` entries that would supply those facts.
    #[must_use]
    pub fn identity_to_add(&self) -> Option<&str> {
        self.identity_to_add.as_deref()
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
    pub const fn beside(&self) -> &Beside {
        &self.beside
    }

    /// Adds what follows from the facts: what `subjects` know, the default tier; and puts paths into
    /// the form in which they are compared. Facts that are
    /// there already are kept, except an unknown API key that is to count as its address.
    pub fn complete<'a>(&'a self, facts: &mut Facts<'a>) {
        self.paths.fold(facts);
        self.subjects.complete(facts);
    }

    /// Does something with facts that are [completed](Self::complete) for it. They are not copied where there is
    /// nothing to complete.
    pub fn completing<T>(&self, facts: &Facts<'_>, then: impl FnOnce(&Facts<'_>) -> T) -> T {
        if self.subjects.complete_nothing() && self.paths.are_exact() {
            return then(facts);
        }
        let mut completed = facts.borrowed();
        self.complete(&mut completed);
        then(&completed)
    }

    /// The active rules that govern a request, in document order, without those that others of them
    /// replace.
    pub fn matching(&self, facts: &Facts<'_>, found: &mut Matches) {
        self.governing(facts, found);
        if self.replacing {
            let replaced = self.replaced_by(found);
            found.retain(|at| !replaced.contains(at));
        }
    }

    /// The rules that do not apply to a call of several requests, because one that governs any of them
    /// replaces them. Mostly none, and then the requests are not looked at.
    #[must_use]
    pub fn replaced<'f, 'a: 'f>(&self, call: impl IntoIterator<Item = &'f Facts<'a>>) -> Matches {
        let mut replaced = Matches::new();
        if self.replacing {
            let mut found = Matches::new();
            for facts in call {
                self.completing(facts, |facts| self.governing(facts, &mut found));
                replaced.extend(self.replaced_by(&found));
            }
        }
        replaced
    }

    fn replaced_by(&self, found: &Matches) -> Matches {
        let rules = found.iter().filter_map(|at| self.get(*at));
        rules.flat_map(|rule| rule.replaces.iter().copied()).collect()
    }

    fn governing(&self, facts: &Facts<'_>, found: &mut Matches) {
        let request = Request::new(facts);
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
        Some(self.keying.describe(&KeyPart::Endpoint, facts).1)
    }

    /// The same rules as the successors of others: a policy that did not change keeps the instant
    /// since when it is in force, a new or changed one is in force from `now`.
    #[must_use]
    pub fn following(mut self, previous: &Self, now: Timestamp) -> Self {
        let known: HashMap<&str, &Rule> =
            previous.rules().iter().map(|rule| (rule.id(), rule)).collect();
        let listed = self.listed;
        for rule in &mut self.rules[..listed] {
            let before = known.get(rule.id()).copied();
            rule.following(before, now);
        }
        self.carries = self.rules().iter().any(|rule| rule.predecessor().is_some());
        self.overrides_following(previous, now);
        self
    }

    pub(crate) const fn keying(&self) -> &Keying {
        &self.keying
    }
}

impl std::ops::Index<u32> for RuleSet {
    type Output = Rule;

    fn index(&self, at: u32) -> &Rule {
        &self.rules[at as usize]
    }
}

fn compile_rules(typed: &[TypedRule], paths: Paths, secret: Secret) -> Vec<Rule> {
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
                None => name::derive(&conditions, &rule.parts, &limit, &mut taken),
            };
            let conditions = match paths.are_exact() {
                true => conditions,
                false => conditions.iter().map(|condition| condition.under(paths)).collect(),
            };
            Rule {
                namespace: namespace(secret, &id, &limit, rule.generation),
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
                before: None,
                conditions,
                parts: shared(parts(rule), &mut lists),
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
fn parts(rule: &TypedRule) -> Box<[KeyPart]> {
    let shared = rule.descriptor().map_or(0, Descriptor::shared);
    let part = |part: &KeyPart| match part {
        KeyPart::Descriptor { .. } => KeyPart::Descriptor { shared },
        part => part.clone(),
    };
    rule.parts.iter().map(part).collect()
}

/// The same list for all rules that count by the same.
fn shared(parts: Box<[KeyPart]>, lists: &mut HashSet<Arc<[KeyPart]>>) -> Arc<[KeyPart]> {
    if let Some(known) = lists.get(&*parts) {
        return Arc::clone(known);
    }
    let parts: Arc<[KeyPart]> = parts.into();
    lists.insert(Arc::clone(&parts));
    parts
}

fn unsupplied(document: &Document, rules: &[Rule]) -> Vec<UnsuppliedFact> {
    // What has no limit is not compiled, as in `compile_rules`.
    let typed = document.rules().iter().filter(|rule| rule.limit.is_some());
    let unsupplied = |(typed, rule): (_, &Rule)| {
        let of_rule = |named: &NamedFact| UnsuppliedFact {
            rule: rule.id().to_owned(),
            fact: named.fact.clone(),
            line: named.span.line,
        };
        document.unsupplied(typed).into_iter().map(of_rule).collect::<Vec<_>>()
    };
    typed.zip(rules).flat_map(unsupplied).collect()
}

fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn patterns(condition: &Condition) -> &[Pattern] {
    match &condition.test {
        Test::Endpoint(any) => any,
        _ => &[],
    }
}

fn version(document: &Document) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.part(document.source().as_bytes());
    document.shorthands().iter().for_each(|text| hasher.part(text.as_bytes()));
    let header = document.declared().api_key_header.as_ref();
    header.into_iter().for_each(|name| hasher.part(name.as_bytes()));
    hasher.finish().lo
}

#[cfg(test)]
mod tests;
