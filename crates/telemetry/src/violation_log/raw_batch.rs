//! A batch of violations in raw form: a few numbers and the unprocessed facts of each.
//!
//! A decision only copies bytes into a reused batch, so it neither allocates nor touches new
//! memory. The writer later derives what is recorded: hashes, patterns and texts.

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

/// Maximum length of a recorded endpoint, in bytes: the size of its column.
const MAX_ENDPOINT_BYTES: usize = 255;

/// Maximum length of a method in the log.
const MAX_METHOD_BYTES: usize = 32;

/// Terminates each text. This byte never occurs in UTF-8, so no lengths are stored.
const TEXT_END: u8 = 0xFF;

/// Violations of one rule set, oldest first.
#[derive(Default)]
pub(super) struct RawViolationBatch {
    rules: Option<Arc<RuleSet>>,
    records: Vec<RawViolation>,
    /// The facts of all records, one text after the other.
    text: Vec<u8>,
    /// Number of records dropped from the front.
    dropped: usize,
    /// Batch sequence number; 0 until the batch is taken for writing.
    sequence: u64,
    /// Whether the violations were sampled for the log.
    sampled: bool,
}

/// One violation. Small, because it is written to memory that the writer thread has read, so each
/// cache line must be fetched again.
#[derive(Clone, Copy)]
struct RawViolation {
    refusal: RuleRefusal,
    /// Start of its text, which ends where the next record's text begins.
    text_start: usize,
    /// Number of descriptor entries before the facts.
    descriptor_len: usize,
    api: ApiKind,
}

/// The verdict and numbers of a rule that refused a request.
#[derive(Clone, Copy)]
pub(super) struct RuleRefusal {
    at: Timestamp,
    remaining: u64,
    retry: Retry,
    rule: u32,
    verdict: Verdict,
}

impl RawViolationBatch {
    /// Number of violations.
    pub(super) const fn len(&self) -> usize {
        self.records.len() - self.dropped
    }

    /// Number of bytes of all texts.
    pub(super) const fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The ID of the rule with this index.
    pub(super) fn rule_id(&self, index: usize) -> Option<&str> {
        let rules = self.rules.as_ref()?;
        rules.get(u32::try_from(index).ok()?).map(Rule::id)
    }

    /// Whether the batch is for violations of this rule set.
    pub(super) fn is_for(&self, rules: &Arc<RuleSet>) -> bool {
        self.rules.as_ref().is_some_and(|known| Arc::ptr_eq(known, rules))
    }

    /// Clears the batch and prepares it for violations of a rule set.
    pub(super) fn reset_for(&mut self, rules: &Arc<RuleSet>) {
        self.clear();
        self.rules = Some(Arc::clone(rules));
    }

    /// Clears the batch, but keeps its memory.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.text.clear();
        (self.rules, self.dropped, self.sequence, self.sampled) = (None, 0, 0, false);
    }

    /// Batch sequence number; 0 until the batch is taken for writing.
    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) const fn set_sequence(&mut self, number: u64) {
        self.sequence = number;
    }

    pub(super) const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Marks the batch as sampled.
    pub(super) fn into_sampled(self) -> Self {
        Self { sampled: true, ..self }
    }

    /// The rule set of the violations; `None` if the batch is unused or cleared.
    pub(super) const fn rules(&self) -> Option<&Arc<RuleSet>> {
        self.rules.as_ref()
    }

    /// Drops the oldest violation and returns its rule index.
    pub(super) fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.records.get(self.dropped)?;
        self.dropped += 1;
        Some(oldest.refusal.count_index())
    }

    /// The rule index of each violation, oldest first.
    pub(super) fn rule_indexes(&self) -> impl Iterator<Item = usize> {
        self.iter().map(|record| record.refusal.count_index())
    }

    fn iter(&self) -> slice::Iter<'_, RawViolation> {
        self.records.get(self.dropped..).unwrap_or_default().iter()
    }

    /// The text of a record.
    fn record_text(&self, at: usize) -> &[u8] {
        let from = self.records.get(at).map_or(self.text.len(), |record| record.text_start);
        let end = self.records.get(at + 1).map_or(self.text.len(), |record| record.text_start);
        self.text.get(from..end).unwrap_or_default()
    }

    /// Copies a violation from another batch of the same rule set.
    pub(super) fn copy_from(&mut self, batch: &Self, at: usize) {
        let at = batch.dropped + at;
        let Some(record) = batch.records.get(at) else { return };
        self.records.push(RawViolation { text_start: self.text.len(), ..*record });
        self.text.extend_from_slice(batch.record_text(at));
    }

    /// Adds a violation.
    #[inline]
    pub(super) fn push(&mut self, refusal: impl FnOnce() -> RuleRefusal, facts: &Facts<'_>) {
        let (text_start, entries) = (self.text.len(), facts.descriptor());
        if !entries.is_empty() {
            self.push_descriptor(entries);
        }
        for (name, value) in facts.iter() {
            self.push_text(name);
            self.push_text(value);
        }
        let (refusal, descriptor_len, api) = (refusal(), entries.len(), facts.api());
        self.records.push(RawViolation { refusal, text_start, descriptor_len, api });
    }

    #[cold]
    fn push_descriptor(&mut self, entries: &[DescriptorPair<'_>]) {
        for entry in entries {
            self.push_text(&entry.key);
            self.push_text(&entry.value);
        }
    }

    /// Not inlined, so that all texts use the same code: after a pause, a decision finds none of it
    /// in the CPU cache and stalls on each cache line.
    #[inline(never)]
    fn push_text(&mut self, text: &str) {
        self.text.reserve(text.len() + 1);
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(TEXT_END);
    }

    /// The violations to record, oldest first.
    pub(super) fn violations(
        &self,
        identities: IdentityPolicy,
    ) -> impl Iterator<Item = RuleViolation> {
        self.map_records(move |refusal, rules, facts| {
            refusal.to_violation(rules, facts, identities)
        })
    }

    /// The log lines, oldest first.
    pub(super) fn log_lines(
        &self,
        identities: IdentityPolicy,
        paths: LogPaths,
    ) -> impl Iterator<Item = ViolationLogLine> {
        self.map_records(move |refusal, rules, facts| {
            refusal.to_log_line(rules, facts, identities, paths)
        })
    }

    /// Calls `make` with each refusal, its rule set and its restored and enriched facts.
    fn map_records<T>(
        &self,
        make: impl Fn(&RuleRefusal, &RuleSet, &Facts<'_>) -> T,
    ) -> impl Iterator<Item = T> {
        let records = self.records.iter().enumerate().skip(self.dropped);
        records.zip(self.rules.iter().cycle()).map(move |((at, record), rules)| {
            let texts = self.record_text(at).split_inclusive(|byte| *byte == TEXT_END);
            // Cannot fail: the bytes were copied from a `str`.
            let mut texts = texts.map(|text| {
                str::from_utf8(text.strip_suffix(&[TEXT_END]).unwrap_or(text)).unwrap_or_default()
            });
            let mut pairs = iter::from_fn(|| texts.next().zip(texts.next()));
            let entries = pairs.by_ref().take(record.descriptor_len);
            let entries: Vec<DescriptorPair<'_>> = entries
                .map(|(key, value)| DescriptorPair { key: key.into(), value: value.into() })
                .collect();
            let mut facts = Facts::new();
            pairs.for_each(|(name, value)| facts.push(name, value));
            facts.set_descriptor(&entries);
            facts.set_api(record.api);
            rules.enrich(&mut facts);
            make(&record.refusal, rules, &facts)
        })
    }
}

impl RuleRefusal {
    /// The refusal of the rule with this index.
    #[inline]
    pub(super) const fn new(rule: u32, verdict: Verdict, reading: &Reading) -> Self {
        let Reading { now, remaining, retry, .. } = *reading;
        Self { at: now, remaining, retry, rule, verdict }
    }

    /// The index of the rule in its rule set.
    pub(super) const fn rule_index(&self) -> u32 {
        self.rule
    }

    /// The index of the rule, as an index into a table of counts.
    pub(super) const fn count_index(&self) -> usize {
        self.rule as usize
    }

    /// The violation to record. The facts must be enriched.
    pub(super) fn to_violation(
        self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        identities: IdentityPolicy,
    ) -> RuleViolation {
        let rule = &rules[self.rule];
        let user = facts.get("user_id").map(|user| identities.mask("user_id", user));
        // An API key is a secret: it is hashed even if other identities are recorded in clear text.
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

    /// The log line. The facts must be enriched.
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

/// The pattern of the endpoint, truncated to [`MAX_ENDPOINT_BYTES`].
fn endpoint_pattern(rules: &RuleSet, facts: &Facts<'_>) -> Option<String> {
    let mut endpoint = rules.endpoint(facts)?;
    endpoint.truncate(endpoint.floor_char_boundary(MAX_ENDPOINT_BYTES));
    Some(endpoint)
}

/// Truncates a method to [`MAX_METHOD_BYTES`], enough for every registered HTTP method. A caller of
/// the HTTP API may send any text.
fn truncate_method(method: &str) -> String {
    method[..method.floor_char_boundary(MAX_METHOD_BYTES)].to_owned()
}
