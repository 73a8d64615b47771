//! Overrides: different limits for single keys of a rule.
//!
//! An override is compiled to a variant of its rule that differs only in the limit. Variants are
//! stored after the rules of the document. They are ordinary rules, so other code need not
//! distinguish them. Keys with equal limits share a variant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;
use tidegate_core::time::Timestamp;

use super::RuleSet;
use crate::diagnostic::FieldError;
use crate::facts::Facts;
use crate::records::{OverrideLimit, OverrideRecord, RecordError};
use crate::rule::{LimitError, Rule, RuleLimit, effective_since};

/// Maps keys to variants, for each rule of the document with overrides.
#[derive(Debug, Default)]
pub(crate) struct OverrideTable {
    by_rule: HashMap<u32, HashMap<Fingerprint, u32>>,
}

/// Collects the variants while a rule set is built.
struct VariantBuilder<'a> {
    rules: &'a mut Vec<Rule>,
    known: HashMap<(u32, VariantKey), u32>,
}

/// The limit, as in the document, that identifies a variant of a rule.
#[derive(PartialEq, Eq, Hash)]
enum VariantKey {
    Policy(Quota, Timestamp),
    Unlimited,
    Deny,
}

impl VariantBuilder<'_> {
    /// The variant of a rule with this limit, created if missing.
    fn variant_for(&mut self, rule: u32, limit: RuleLimit) -> Result<u32, LimitError> {
        let key = match &limit {
            RuleLimit::Policy(policy) => {
                VariantKey::Policy(*policy.quota(), policy.effective_since())
            }
            RuleLimit::Unlimited => VariantKey::Unlimited,
            RuleLimit::Deny { .. } => VariantKey::Deny,
        };
        match self.known.entry((rule, key)) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(unknown) => {
                let variant = self.rules[rule as usize].with_limit(limit)?;
                let at = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
                self.rules.push(variant);
                Ok(*unknown.insert(at))
            }
        }
    }

    /// The variant for an override.
    fn override_variant(&mut self, rule: u32, allows: OverrideLimit) -> Result<u32, String> {
        let base = &self.rules[rule as usize];
        let limit = override_limit(base, allows)?;
        let (id, mode) = (base.id.clone(), base.consistency.name());
        self.variant_for(rule, limit).map_err(|error| {
            let FieldError { message, hint, .. } = error.describe();
            let hint = hint.map_or_else(String::new, |hint| format!("; write {hint}"));
            let kind = match error {
                LimitError::Share(_) => "divided among regions",
                LimitError::Consistency(..) => mode,
            };
            format!("rule `{id}` is {kind}: {message}{hint}")
        })
    }
}

impl RuleSet {
    /// The hash that identifies the key of these facts in overrides of a rule. It does not depend
    /// on the rule's limit, algorithm or window.
    ///
    /// # Errors
    /// If the rule does not exist, has one counter for all clients, or the facts lack a part of its
    /// key.
    pub fn override_key(&self, rule: &str, facts: &Facts<'_>) -> Result<Fingerprint, RecordError> {
        let wrong = |message: String| RecordError { index: 0, message };
        let known = self.rules().iter().find(|known| known.id() == rule);
        let rule = known.ok_or_else(|| wrong(format!("there is no rule `{rule}`")))?;
        if rule.parts.is_empty() {
            let id = rule.id();
            return Err(wrong(format!(
                "rule `{id}` has one counter for all clients; change the rule instead"
            )));
        }
        for name in rule.key_by() {
            if facts.get(name).is_none_or(str::is_empty) {
                let (id, key) = (rule.id(), rule.key_by().collect::<Vec<_>>().join(", "));
                let message = format!("rule `{id}` counts by {key}, but `{name}` is missing");
                return Err(wrong(message));
            }
        }
        let mut facts = facts.borrowed();
        self.paths.fold_facts(&mut facts);
        Ok(self.override_fingerprint(rule, &facts))
    }

    /// The index of the rule to apply instead of the rule at `at`: its variant for this key, or
    /// `at` itself.
    #[inline]
    #[must_use]
    pub fn variant_for(&self, at: u32, facts: &Facts<'_>) -> u32 {
        if self.overrides.by_rule.is_empty() {
            return at;
        }
        let Some(by_key) = self.overrides.by_rule.get(&at) else { return at };
        let key = self.override_fingerprint(&self[at], facts);
        by_key.get(&key).copied().unwrap_or(at)
    }

    /// Number of keys with an override.
    #[must_use]
    pub fn override_count(&self) -> usize {
        self.overrides.by_rule.values().map(HashMap::len).sum()
    }

    fn override_fingerprint(&self, rule: &Rule, facts: &Facts<'_>) -> Fingerprint {
        let mut hasher = self.seed;
        hasher.write_part(b"override");
        self.key_derivation().hash_parts(hasher, &rule.parts, facts).finish()
    }

    /// Adds overrides to a rule set that has none.
    pub(super) fn apply_overrides(&mut self, records: &[OverrideRecord]) -> Vec<RecordError> {
        let ids: HashMap<String, u32> =
            (0..).zip(self.rules()).map(|(at, rule)| (rule.id().to_owned(), at)).collect();
        let mut problems = Vec::new();
        let mut variants = VariantBuilder { rules: &mut self.rules, known: HashMap::new() };
        for (at, record) in records.iter().enumerate() {
            let found = ids.get(&record.rule).ok_or_else(|| {
                format!("rule `{}` of this override does not exist any more", record.rule)
            });
            let variant =
                found.and_then(|rule| Ok((*rule, variants.override_variant(*rule, record.limit)?)));
            match variant {
                Ok((rule, variant)) => {
                    let by_key = self.overrides.by_rule.entry(rule).or_default();
                    by_key.insert(record.key, variant);
                }
                Err(message) => problems.push(RecordError { index: at, message }),
            }
        }
        problems
    }

    /// Takes over the state of the previous overrides. An unchanged override keeps its effective
    /// time. For a key that lost its override, the rule's own limit takes effect at `now` and not
    /// at the time when the rule took effect. This lasts until the key's earlier usage has expired.
    pub(super) fn inherit_overrides(&mut self, previous: &Self, now: Timestamp) {
        let before: HashMap<&str, u32> =
            (0..).zip(previous.rules()).map(|(at, rule)| (rule.id(), at)).collect();
        let had = |id: &str, key: Fingerprint| {
            let at = *before.get(id)?;
            let by_key = previous.overrides.by_rule.get(&at);
            let variant = by_key.and_then(|by_key| by_key.get(&key)).copied();
            previous[variant.unwrap_or(at)].limit.policy()
        };
        let mut limits: Vec<(u32, Fingerprint, RuleLimit)> = Vec::new();
        for (&at, by_key) in &self.overrides.by_rule {
            for (&key, &variant) in by_key {
                let mut limit = self[variant].document_limit();
                if let Some(policy) = self[variant].limit.policy() {
                    let since = effective_since(policy, had(self[at].id(), key), now);
                    limit = limit.with_effective_since(since);
                }
                limits.push((at, key, limit));
            }
        }
        for (at, rule) in (0..).zip(self.rules()) {
            let lost = before.get(rule.id()).and_then(|at| previous.overrides.by_rule.get(at));
            for (&key, &variant) in lost.into_iter().flatten() {
                let has = self.overrides.by_rule.get(&at).is_some_and(|has| has.contains_key(&key));
                let (RuleLimit::Policy(base), false) = (&rule.limit, has) else { continue };
                let since = effective_since(base, previous[variant].limit.policy(), now);
                if now.since(since) < base.period() {
                    limits.push((at, key, rule.document_limit().with_effective_since(since)));
                }
            }
        }
        self.rules.truncate(self.document_rule_count);
        self.overrides.by_rule.clear();
        let mut variants = VariantBuilder { rules: &mut self.rules, known: HashMap::new() };
        for (at, key, limit) in limits {
            // Each limit was accepted when its rule set was compiled.
            let Ok(variant) = variants.variant_for(at, limit) else { continue };
            self.overrides.by_rule.entry(at).or_default().insert(key, variant);
        }
    }
}

/// The limit of a rule with the numbers of an override.
fn override_limit(rule: &Rule, allows: OverrideLimit) -> Result<RuleLimit, String> {
    let (requests, burst) = match allows {
        OverrideLimit::Unlimited => return Ok(RuleLimit::Unlimited),
        OverrideLimit::Deny => return Ok(RuleLimit::Deny { window: None }),
        OverrideLimit::Requests { requests, burst } => (requests, burst),
    };
    let RuleLimit::Policy(policy) = rule.document_limit() else {
        return Err(format!(
            "rule `{}` has no counter, so there is no number to override",
            rule.id
        ));
    };
    let quota = Quota { requests, burst, ..*policy.quota() };
    let policy = Policy::new(policy.algorithm(), quota).map_err(|error| error.to_string())?;
    Ok(RuleLimit::Policy(policy))
}
