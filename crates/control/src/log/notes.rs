//! Violations as a decision jots them down: a few numbers, and the facts as they are.
//!
//! What is put on record of them (hashes, patterns, texts) is worked out later by whoever writes it. A decision
//! only copies bytes into a page that was used before, so that it neither allocates nor touches new memory.

use std::sync::Arc;

use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;
use tidegate_engine::RuleReading;
use tidegate_rules::{Door, Entry, Facts, Rule, RuleSet};

use super::lines::Line;
use crate::violation::{Identities, Violation};

/// The longest endpoint on record, as long as the seeds' table has it.
const MAX_ENDPOINT: usize = 255;

/// The longest method in the log.
const MAX_METHOD: usize = 32;

/// Some violations, in order, under one rule set.
#[derive(Default)]
pub(super) struct Page {
    rules: Option<Arc<RuleSet>>,
    notes: Vec<Note>,
    /// The facts of all notes, text after text, and how long each of them is.
    text: Vec<u8>,
    lengths: Vec<u32>,
    /// So many of the first are dropped.
    dropped: usize,
}

struct Note {
    refusal: Refusal,
    door: Door,
    /// How many entries of a descriptor there are, and facts after them.
    entries: u32,
    facts: u32,
    /// Where its text begins, and the lengths in it.
    from: [usize; 2],
}

/// What a rule said that refused a request.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    at: Timestamp,
    rule: u32,
    remaining: u64,
    verdict: Verdict,
    retry: Retry,
}

impl Page {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.notes.len() - self.dropped
    }

    /// The bytes that they take.
    pub(super) const fn bytes(&self) -> usize {
        self.text.len() + size_of::<u32>() * self.lengths.len()
    }

    /// The id of the rule at a place.
    pub(super) fn rule_id(&self, place: usize) -> Option<&str> {
        let rules = self.rules.as_ref()?;
        rules.get(u32::try_from(place).ok()?).map(Rule::id)
    }

    /// Whether violations under a rule set can be jotted down here.
    pub(super) fn is_for(&self, rules: &Arc<RuleSet>) -> bool {
        self.rules.as_ref().is_some_and(|known| Arc::ptr_eq(known, rules))
    }

    /// Wipes it, for violations under a rule set.
    pub(super) fn begin(&mut self, rules: &Arc<RuleSet>) {
        self.wipe();
        self.rules = Some(Arc::clone(rules));
    }

    /// Forgets all, but not the memory.
    pub(super) fn wipe(&mut self) {
        self.notes.clear();
        self.text.clear();
        self.lengths.clear();
        (self.rules, self.dropped) = (None, 0);
    }

    /// Drops the oldest.
    pub(super) const fn drop_oldest(&mut self) {
        self.dropped += 1;
    }

    /// Jots down what a rule refused.
    pub(super) fn jot(&mut self, refusal: Refusal, facts: &Facts<'_>) {
        let (door, from) = (facts.door(), [self.text.len(), self.lengths.len()]);
        let mut note = Note { refusal, door, entries: 0, facts: 0, from };
        for entry in facts.descriptor() {
            self.copy(&entry.key);
            self.copy(&entry.value);
            note.entries += 1;
        }
        for (name, value) in facts.iter() {
            self.copy(name);
            self.copy(value);
            note.facts += 1;
        }
        self.notes.push(note);
    }

    fn copy(&mut self, text: &str) {
        // No door takes a request of four gigabytes.
        let length = u32::try_from(text.len()).unwrap_or(0);
        self.lengths.push(length);
        self.text.extend_from_slice(&text.as_bytes()[..length as usize]);
    }

    /// What is put on record, in order.
    pub(super) fn violations(&self, identities: Identities) -> impl Iterator<Item = Violation> {
        self.each(move |refusal, rules, facts| refusal.on_record(rules, facts, identities))
    }

    /// What the log says, in order.
    pub(super) fn lines(&self, identities: Identities) -> impl Iterator<Item = Line> {
        self.each(move |refusal, rules, facts| refusal.as_line(rules, facts, identities))
    }

    /// What is made of each refusal, its rules and its facts, which are complete again.
    fn each<T>(
        &self,
        make: impl Fn(&Refusal, &RuleSet, &Facts<'_>) -> T,
    ) -> impl Iterator<Item = T> {
        let notes = self.notes.get(self.dropped..).unwrap_or_default();
        notes.iter().zip(self.rules.iter().cycle()).map(move |(note, rules)| {
            let [text, lengths] = note.from;
            let mut text = Texts {
                text: self.text.get(text..).unwrap_or_default(),
                lengths: self.lengths.get(lengths..).unwrap_or_default(),
            };
            let entry = |_| Entry { key: text.next().into(), value: text.next().into() };
            let entries: Vec<Entry<'_>> = (0..note.entries).map(entry).collect();
            let mut facts = Facts::new();
            for _ in 0..note.facts {
                let (name, value) = (text.next(), text.next());
                facts.push(name, value);
            }
            facts.set_descriptor(&entries);
            facts.set_door(note.door);
            rules.complete(&mut facts);
            make(&note.refusal, rules, &facts)
        })
    }
}

/// Texts and their lengths, as [`Page::copy`] writes them.
struct Texts<'a> {
    text: &'a [u8],
    lengths: &'a [u32],
}

impl<'a> Texts<'a> {
    fn next(&mut self) -> &'a str {
        let Some((length, lengths)) = self.lengths.split_first() else { return "" };
        let (text, rest) = self.text.split_at((*length as usize).min(self.text.len()));
        (self.text, self.lengths) = (rest, lengths);
        // It was text before.
        str::from_utf8(text).unwrap_or_default()
    }
}

impl Refusal {
    pub(super) fn new(rule: u32, reading: &RuleReading, clock: &dyn Fn() -> Timestamp) -> Self {
        Self {
            at: reading.numbers.map_or_else(clock, |told| told.now),
            rule,
            remaining: reading.numbers.map_or(0, |told| told.remaining),
            verdict: reading.verdict,
            retry: reading.retry(),
        }
    }

    /// The place of the rule in its rule set.
    pub(super) const fn place(&self) -> usize {
        self.rule as usize
    }

    /// What is put on record of it, of facts that are complete.
    pub(super) fn on_record(
        &self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        identities: Identities,
    ) -> Violation {
        let rule = &rules[self.rule];
        let user = facts.get("user_id").map(|user| identities.kept("user_id", user));
        // A key is a secret, whatever is kept of others.
        let by_key = || facts.get("api_key").map(|key| identities.hashed("api_key", key));
        let shown = |key: Fingerprint| format!("{:016x}{:016x}", key.hi, key.lo);
        Violation {
            at: self.at,
            rule: rule.id().to_owned(),
            bucket_key: rule.shown_fingerprint(facts, rules).map_or_else(String::new, shown),
            user_id: user.or_else(by_key),
            ip: facts.get("ip").map(|ip| identities.kept("ip", ip)),
            endpoint: endpoint(rules, facts),
            remaining: self.remaining,
            enforced: self.verdict != Verdict::ShadowDeny,
        }
    }

    /// What the log says of it, of facts that are complete.
    fn as_line(&self, rules: &RuleSet, facts: &Facts<'_>, identities: Identities) -> Line {
        let rule = &rules[self.rule];
        let policy = rule.limit().policy();
        Line {
            violation: self.on_record(rules, facts, identities),
            verdict: self.verdict,
            mode: rule.mode().name(),
            algorithm: policy.map(|policy| policy.algorithm().name()),
            limit: policy.map(Policy::limit),
            retry: self.retry,
            door: facts.door(),
            method: facts.get("method").map(cut),
            suppressed: 0,
        }
    }
}

/// The pattern of the endpoint, cut where the table ends.
fn endpoint(rules: &RuleSet, facts: &Facts<'_>) -> Option<String> {
    let mut endpoint = rules.endpoint(facts)?;
    endpoint.truncate(endpoint.floor_char_boundary(MAX_ENDPOINT));
    Some(endpoint)
}

/// As much as the longest method of HTTP that is known takes; a caller of the HTTP door may say anything.
fn cut(method: &str) -> String {
    method[..method.floor_char_boundary(MAX_METHOD)].to_owned()
}
