//! Violations as a decision jots them down: a few numbers, and the facts as they are.
//!
//! What is put on record of them (hashes, patterns, texts) is worked out later by whoever writes it. A decision
//! only copies bytes into a page that was used before, so that it neither allocates nor touches new memory.

use std::sync::Arc;
use std::{iter, slice};

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;
use tidegate_rules::{Door, Entry, Facts, Rule, RuleSet};

use super::lines::Line;
use crate::violation::{Identities, Violation};

/// The longest endpoint on record, as long as the seeds' table has it.
const MAX_ENDPOINT: usize = 255;

/// The longest method in the log.
const MAX_METHOD: usize = 32;

/// Ends each text. No UTF-8 has this byte in it, so that lengths need not be kept.
const END: u8 = 0xFF;

/// Some violations, in order, under one rule set.
#[derive(Default)]
pub(super) struct Page {
    rules: Option<Arc<RuleSet>>,
    notes: Vec<Note>,
    /// The facts of all notes, text after text.
    text: Vec<u8>,
    /// So many of the first are dropped.
    dropped: usize,
    /// Which of those that were to be written it is; nought if it is none yet.
    number: u64,
    /// Whether they are counted among those that the log tells of.
    seen: bool,
}

/// Small, because each is written to memory that another thread has read meanwhile.
#[derive(Clone, Copy)]
struct Note {
    refusal: Refusal,
    /// Where its text begins; it ends where the next one begins.
    from: usize,
    /// How many entries of a descriptor there are before the facts.
    entries: usize,
    door: Door,
}

/// What a rule said that refused a request.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    at: Timestamp,
    remaining: u64,
    retry: Retry,
    rule: u32,
    verdict: Verdict,
}

impl Page {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.notes.len() - self.dropped
    }

    /// The bytes that their texts take.
    pub(super) const fn bytes(&self) -> usize {
        self.text.len()
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
        (self.rules, self.dropped, self.number, self.seen) = (None, 0, 0, false);
    }

    /// Which of those that were to be written it is; nought if it is none yet.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) const fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    pub(super) const fn is_seen(&self) -> bool {
        self.seen
    }

    /// The same, of which the log tells.
    pub(super) fn into_seen(self) -> Self {
        Self { seen: true, ..self }
    }

    /// The rule set that they are under; none if there are none.
    pub(super) const fn rules(&self) -> Option<&Arc<RuleSet>> {
        self.rules.as_ref()
    }

    /// Drops the oldest; says which rule it was of.
    pub(super) fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.notes.get(self.dropped)?;
        self.dropped += 1;
        Some(oldest.refusal.place())
    }

    /// The rules of all, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.kept().map(|note| note.refusal.place())
    }

    fn kept(&self) -> slice::Iter<'_, Note> {
        self.notes.get(self.dropped..).unwrap_or_default().iter()
    }

    /// The text of a note.
    fn text(&self, at: usize) -> &[u8] {
        let from = self.notes.get(at).map_or(self.text.len(), |note| note.from);
        let end = self.notes.get(at + 1).map_or(self.text.len(), |note| note.from);
        self.text.get(from..end).unwrap_or_default()
    }

    /// Takes over one of another page under the same rule set.
    pub(super) fn copy_from(&mut self, page: &Self, at: usize) {
        let at = page.dropped + at;
        let Some(note) = page.notes.get(at) else { return };
        self.notes.push(Note { from: self.text.len(), ..*note });
        self.text.extend_from_slice(page.text(at));
    }

    /// Jots down what a rule refused.
    #[inline]
    pub(super) fn jot(&mut self, refusal: impl FnOnce() -> Refusal, facts: &Facts<'_>) {
        let (from, entries) = (self.text.len(), facts.descriptor());
        if !entries.is_empty() {
            self.copy_entries(entries);
        }
        for (name, value) in facts.iter() {
            self.copy(name);
            self.copy(value);
        }
        let (refusal, entries, door) = (refusal(), entries.len(), facts.door());
        self.notes.push(Note { refusal, from, entries, door });
    }

    #[cold]
    fn copy_entries(&mut self, entries: &[Entry<'_>]) {
        for entry in entries {
            self.copy(&entry.key);
            self.copy(&entry.value);
        }
    }

    /// One piece of code for all texts: a decision that finds nothing of it in a near cache waits for each line.
    #[inline(never)]
    fn copy(&mut self, text: &str) {
        self.text.reserve(text.len() + 1);
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(END);
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
        let notes = self.notes.iter().enumerate().skip(self.dropped);
        notes.zip(self.rules.iter().cycle()).map(move |((at, note), rules)| {
            let texts = self.text(at).split_inclusive(|byte| *byte == END);
            // It was text before.
            let mut texts = texts.map(|text| {
                str::from_utf8(text.strip_suffix(&[END]).unwrap_or(text)).unwrap_or_default()
            });
            let mut pairs = iter::from_fn(|| texts.next().zip(texts.next()));
            let entries = pairs.by_ref().take(note.entries);
            let entries: Vec<Entry<'_>> = entries
                .map(|(key, value)| Entry { key: key.into(), value: value.into() })
                .collect();
            let mut facts = Facts::new();
            pairs.for_each(|(name, value)| facts.push(name, value));
            facts.set_descriptor(&entries);
            facts.set_door(note.door);
            rules.complete(&mut facts);
            make(&note.refusal, rules, &facts)
        })
    }
}

impl Refusal {
    /// What the rule at a place said, with its numbers.
    #[inline]
    pub(super) const fn new(rule: u32, verdict: Verdict, told: &Reading) -> Self {
        let Reading { now, remaining, retry, .. } = *told;
        Self { at: now, remaining, retry, rule, verdict }
    }

    /// The place of the rule in its rule set.
    pub(super) const fn rule(&self) -> u32 {
        self.rule
    }

    /// The same to count by.
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
        Violation {
            at: self.at,
            rule: rule.id().to_owned(),
            bucket_key: rule
                .shown_fingerprint(facts, rules)
                .map_or_else(String::new, Fingerprint::hex),
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
