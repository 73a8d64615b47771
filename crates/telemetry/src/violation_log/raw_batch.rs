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
use tidegate_rules::{ApiKind, DescriptorPair, Facts, Rule, RuleSet};
use tidegate_web::LogPaths;

use super::log_lines::ViolationLogLine;
use crate::violation::{IdentityPolicy, RuleViolation};

/// The longest endpoint on record, as long as the seeds' table has it.
const MAX_ENDPOINT_BYTES: usize = 255;

/// The longest method in the log.
const MAX_METHOD_BYTES: usize = 32;

/// Ends each text. No UTF-8 has this byte in it, so that lengths need not be kept.
const TEXT_END: u8 = 0xFF;

/// Some violations, in order, under one rule set.
#[derive(Default)]
pub(super) struct RawViolationBatch {
    rules: Option<Arc<RuleSet>>,
    records: Vec<RawViolation>,
    /// The facts of all notes, text after text.
    text: Vec<u8>,
    /// So many of the first are dropped.
    dropped: usize,
    /// Which of those that were to be written it is; nought if it is none yet.
    sequence: u64,
    /// Whether they are counted among those that the log tells of.
    sampled: bool,
}

/// Small, because each is written to memory that another thread has read meanwhile.
#[derive(Clone, Copy)]
struct RawViolation {
    refusal: RuleRefusal,
    /// Where its text begins; it ends where the next one begins.
    text_start: usize,
    /// How many entries of a descriptor there are before the facts.
    descriptor_len: usize,
    api: ApiKind,
}

/// What a rule said that refused a request.
#[derive(Clone, Copy)]
pub(super) struct RuleRefusal {
    at: Timestamp,
    remaining: u64,
    retry: Retry,
    rule: u32,
    verdict: Verdict,
}

impl RawViolationBatch {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.records.len() - self.dropped
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
    pub(super) fn reset_for(&mut self, rules: &Arc<RuleSet>) {
        self.clear();
        self.rules = Some(Arc::clone(rules));
    }

    /// Forgets all, but not the memory.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.text.clear();
        (self.rules, self.dropped, self.sequence, self.sampled) = (None, 0, 0, false);
    }

    /// Which of those that were to be written it is; nought if it is none yet.
    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) const fn set_sequence(&mut self, number: u64) {
        self.sequence = number;
    }

    pub(super) const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// The same, of which the log tells.
    pub(super) fn into_sampled(self) -> Self {
        Self { sampled: true, ..self }
    }

    /// The rule set that they are under; none if there are none.
    pub(super) const fn rules(&self) -> Option<&Arc<RuleSet>> {
        self.rules.as_ref()
    }

    /// Drops the oldest; says which rule it was of.
    pub(super) fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.records.get(self.dropped)?;
        self.dropped += 1;
        Some(oldest.refusal.count_index())
    }

    /// The rules of all, in order.
    pub(super) fn rule_indexes(&self) -> impl Iterator<Item = usize> {
        self.iter().map(|note| note.refusal.count_index())
    }

    fn iter(&self) -> slice::Iter<'_, RawViolation> {
        self.records.get(self.dropped..).unwrap_or_default().iter()
    }

    /// The text of a note.
    fn record_text(&self, at: usize) -> &[u8] {
        let from = self.records.get(at).map_or(self.text.len(), |note| note.text_start);
        let end = self.records.get(at + 1).map_or(self.text.len(), |note| note.text_start);
        self.text.get(from..end).unwrap_or_default()
    }

    /// Takes over one of another page under the same rule set.
    pub(super) fn copy_from(&mut self, page: &Self, at: usize) {
        let at = page.dropped + at;
        let Some(note) = page.records.get(at) else { return };
        self.records.push(RawViolation { text_start: self.text.len(), ..*note });
        self.text.extend_from_slice(page.record_text(at));
    }

    /// Jots down what a rule refused.
    #[inline]
    pub(super) fn push(&mut self, refusal: impl FnOnce() -> RuleRefusal, facts: &Facts<'_>) {
        let (from, entries) = (self.text.len(), facts.descriptor());
        if !entries.is_empty() {
            self.push_descriptor(entries);
        }
        for (name, value) in facts.iter() {
            self.push_text(name);
            self.push_text(value);
        }
        let (refusal, entries, door) = (refusal(), entries.len(), facts.api());
        self.records.push(RawViolation {
            refusal,
            text_start: from,
            descriptor_len: entries,
            api: door,
        });
    }

    #[cold]
    fn push_descriptor(&mut self, entries: &[DescriptorPair<'_>]) {
        for entry in entries {
            self.push_text(&entry.key);
            self.push_text(&entry.value);
        }
    }

    /// One piece of code for all texts: a decision that finds nothing of it in a near cache waits for each line.
    #[inline(never)]
    fn push_text(&mut self, text: &str) {
        self.text.reserve(text.len() + 1);
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(TEXT_END);
    }

    /// What is put on record, in order.
    pub(super) fn violations(
        &self,
        identities: IdentityPolicy,
    ) -> impl Iterator<Item = RuleViolation> {
        self.map_records(move |refusal, rules, facts| {
            refusal.to_violation(rules, facts, identities)
        })
    }

    /// What the log says, in order.
    pub(super) fn log_lines(
        &self,
        identities: IdentityPolicy,
        paths: LogPaths,
    ) -> impl Iterator<Item = ViolationLogLine> {
        self.map_records(move |refusal, rules, facts| {
            refusal.to_log_line(rules, facts, identities, paths)
        })
    }

    /// What is made of each refusal, its rules and its facts, which are complete again.
    fn map_records<T>(
        &self,
        make: impl Fn(&RuleRefusal, &RuleSet, &Facts<'_>) -> T,
    ) -> impl Iterator<Item = T> {
        let notes = self.records.iter().enumerate().skip(self.dropped);
        notes.zip(self.rules.iter().cycle()).map(move |((at, note), rules)| {
            let texts = self.record_text(at).split_inclusive(|byte| *byte == TEXT_END);
            // It was text before.
            let mut texts = texts.map(|text| {
                str::from_utf8(text.strip_suffix(&[TEXT_END]).unwrap_or(text)).unwrap_or_default()
            });
            let mut pairs = iter::from_fn(|| texts.next().zip(texts.next()));
            let entries = pairs.by_ref().take(note.descriptor_len);
            let entries: Vec<DescriptorPair<'_>> = entries
                .map(|(key, value)| DescriptorPair { key: key.into(), value: value.into() })
                .collect();
            let mut facts = Facts::new();
            pairs.for_each(|(name, value)| facts.push(name, value));
            facts.set_descriptor(&entries);
            facts.set_api(note.api);
            rules.enrich(&mut facts);
            make(&note.refusal, rules, &facts)
        })
    }
}

impl RuleRefusal {
    /// What the rule at a place said, with its numbers.
    #[inline]
    pub(super) const fn new(rule: u32, verdict: Verdict, told: &Reading) -> Self {
        let Reading { now, remaining, retry, .. } = *told;
        Self { at: now, remaining, retry, rule, verdict }
    }

    /// The place of the rule in its rule set.
    pub(super) const fn rule_index(&self) -> u32 {
        self.rule
    }

    /// The same to count by.
    pub(super) const fn count_index(&self) -> usize {
        self.rule as usize
    }

    /// What is put on record of it, of facts that are complete.
    pub(super) fn to_violation(
        self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        identities: IdentityPolicy,
    ) -> RuleViolation {
        let rule = &rules[self.rule];
        let user = facts.get("user_id").map(|user| identities.mask("user_id", user));
        // A key is a secret, whatever is kept of others.
        let by_key = || facts.get("api_key").map(|key| identities.hash_value("api_key", key));
        RuleViolation {
            at: self.at,
            rule: rule.id().to_owned(),
            bucket_key: rule
                .public_fingerprint(facts, rules)
                .map_or_else(String::new, Fingerprint::to_hex),
            user_id: user.or_else(by_key),
            ip: identities.mask_ip(facts, rules),
            endpoint: endpoint_pattern(rules, facts),
            remaining: self.remaining,
            enforced: self.verdict != Verdict::ShadowDeny,
        }
    }

    /// What the log says of it, of facts that are complete.
    fn to_log_line(
        self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        identities: IdentityPolicy,
        paths: LogPaths,
    ) -> ViolationLogLine {
        let rule = &rules[self.rule];
        let policy = rule.limit().policy();
        let mut violation = self.to_violation(rules, facts, identities);
        let undeclared = facts.get("endpoint").is_none() && rules.path_pattern(facts).is_none();
        if paths == LogPaths::Patterns && undeclared && violation.endpoint.is_some() {
            let method = facts.get("method").map(|method| format!("{} ", truncate_method(method)));
            violation.endpoint = Some(method.unwrap_or_default() + "*");
        }
        ViolationLogLine {
            violation,
            verdict: self.verdict,
            mode: rule.mode().name(),
            algorithm: policy.map(|policy| policy.algorithm().name()),
            limit: policy.map(Policy::limit),
            retry: self.retry,
            api: facts.api(),
            method: facts.get("method").map(truncate_method),
            suppressed: 0,
        }
    }
}

/// The pattern of the endpoint, cut where the table ends.
fn endpoint_pattern(rules: &RuleSet, facts: &Facts<'_>) -> Option<String> {
    let mut endpoint = rules.endpoint(facts)?;
    endpoint.truncate(endpoint.floor_char_boundary(MAX_ENDPOINT_BYTES));
    Some(endpoint)
}

/// As much as the longest method of HTTP that is known takes; a caller of the HTTP door may say anything.
fn truncate_method(method: &str) -> String {
    method[..method.floor_char_boundary(MAX_METHOD_BYTES)].to_owned()
}
