//! Overrides: keys of a rule that have numbers of their own.
//!
//! An override is compiled to a variant of its rule, the same in everything but the numbers, behind the
//! rules of the document. Whoever is governed by a variant instead of its rule notices nothing, and
//! nobody else need know that there are any. Keys with the same numbers share a variant.

use std::collections::HashMap;

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;
use tidegate_core::time::Timestamp;

use super::RuleSet;
use crate::facts::Facts;
use crate::records::{Allowance, OverrideRecord, RecordProblem};
use crate::rule::{Limit, Rule, since};

/// Which variant governs which key, for each rule of the document that has any.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    by_rule: HashMap<u32, HashMap<Fingerprint, u32>>,
}

/// The variants of a rule set in the making.
struct Variants<'a> {
    rules: &'a mut Vec<Rule>,
    known: HashMap<(u32, Numbers), u32>,
}

/// What tells variants of a rule apart.
#[derive(PartialEq, Eq, Hash)]
enum Numbers {
    Policy(Quota, Timestamp),
    Unlimited,
    Deny,
}

impl Variants<'_> {
    /// The variant of a rule with a limit.
    fn of(&mut self, rule: u32, limit: Limit) -> u32 {
        let numbers = match &limit {
            Limit::Policy(policy) => Numbers::Policy(*policy.quota(), policy.since()),
            Limit::Unlimited => Numbers::Unlimited,
            Limit::Deny => Numbers::Deny,
        };
        *self.known.entry((rule, numbers)).or_insert_with(|| {
            let variant = Rule { limit, ..self.rules[rule as usize].clone() };
            self.rules.push(variant);
            u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

impl RuleSet {
    /// The hash that names whoever the facts describe in an override of a rule. It does not depend on
    /// the rule's numbers, algorithm or window.
    ///
    /// # Errors
    /// When there is no such rule, it has one counter for all, or the facts do not name a part of its key.
    pub fn override_key(
        &self,
        rule: &str,
        facts: &Facts<'_>,
    ) -> Result<Fingerprint, RecordProblem> {
        let wrong = |message: String| RecordProblem { at: 0, message };
        let known = self.rules().iter().find(|known| known.id() == rule);
        let rule = known.ok_or_else(|| wrong(format!("there is no rule `{rule}`")))?;
        if rule.parts.is_empty() {
            let id = rule.id();
            return Err(wrong(format!("rule `{id}` has one counter for all, so change the rule")));
        }
        for name in rule.key_by() {
            if facts.get(name).is_none_or(str::is_empty) {
                let (id, key) = (rule.id(), rule.key_by().collect::<Vec<_>>().join(", "));
                let message = format!("rule `{id}` counts by {key}, and `{name}` is not said");
                return Err(wrong(message));
            }
        }
        let mut facts = facts.borrowed();
        self.paths.fold(&mut facts);
        Ok(self.key_of_override(rule, &facts))
    }

    /// The rule that governs a request as the one at `at` does: that one, or its variant for the key.
    #[inline]
    #[must_use]
    pub fn variant(&self, at: u32, facts: &Facts<'_>) -> u32 {
        if self.overrides.by_rule.is_empty() {
            return at;
        }
        let Some(by_key) = self.overrides.by_rule.get(&at) else { return at };
        let key = self.key_of_override(&self[at], facts);
        by_key.get(&key).copied().unwrap_or(at)
    }

    /// How many keys have numbers of their own.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides.by_rule.values().map(HashMap::len).sum()
    }

    fn key_of_override(&self, rule: &Rule, facts: &Facts<'_>) -> Fingerprint {
        let mut hasher = self.seed;
        hasher.part(b"override");
        self.keying().absorbed(hasher, &rule.parts, facts).finish()
    }

    /// Puts overrides into a rule set that has none.
    pub(super) fn override_with(&mut self, records: &[OverrideRecord]) -> Vec<RecordProblem> {
        let ids: HashMap<String, u32> =
            (0..).zip(self.rules()).map(|(at, rule)| (rule.id().to_owned(), at)).collect();
        let mut problems = Vec::new();
        let mut variants = Variants { rules: &mut self.rules, known: HashMap::new() };
        for (at, record) in records.iter().enumerate() {
            let found = ids.get(&record.rule).ok_or_else(|| {
                format!("there is no rule `{}` any more that this could override", record.rule)
            });
            let limit = found.and_then(|rule| {
                let limit = limit(&variants.rules[*rule as usize], record.allows)?;
                Ok((*rule, limit))
            });
            match limit {
                Ok((rule, limit)) => {
                    let variant = variants.of(rule, limit);
                    let by_key = self.overrides.by_rule.entry(rule).or_default();
                    by_key.insert(record.key, variant);
                }
                Err(message) => problems.push(RecordProblem { at, message }),
            }
        }
        problems
    }

    /// The same overrides after those of `previous`: one that did not change has been in force for as long
    /// as it was. A key that lost its override falls back to the rule's numbers from `now`, not from
    /// whenever the rule came into force, until it could have forgotten the difference.
    pub(super) fn overrides_following(&mut self, previous: &Self, now: Timestamp) {
        let before: HashMap<&str, u32> =
            (0..).zip(previous.rules()).map(|(at, rule)| (rule.id(), at)).collect();
        let had = |id: &str, key: Fingerprint| {
            let at = *before.get(id)?;
            let by_key = previous.overrides.by_rule.get(&at);
            let variant = by_key.and_then(|by_key| by_key.get(&key)).copied();
            previous[variant.unwrap_or(at)].limit.policy()
        };
        let mut limits: Vec<(u32, Fingerprint, Limit)> = Vec::new();
        for (&at, by_key) in &self.overrides.by_rule {
            for (&key, &variant) in by_key {
                let limit = self[variant].limit.in_force(had(self[at].id(), key), now);
                limits.push((at, key, limit));
            }
        }
        for (at, rule) in (0..).zip(self.rules()) {
            let lost = before.get(rule.id()).and_then(|at| previous.overrides.by_rule.get(at));
            for (&key, &variant) in lost.into_iter().flatten() {
                let has = self.overrides.by_rule.get(&at).is_some_and(|has| has.contains_key(&key));
                let (Limit::Policy(base), false) = (&rule.limit, has) else { continue };
                let fallen =
                    base.in_force_since(since(base, previous[variant].limit.policy(), now));
                if now.since(fallen.since()) < fallen.period() {
                    limits.push((at, key, Limit::Policy(fallen)));
                }
            }
        }
        self.rules.truncate(self.listed);
        self.overrides.by_rule.clear();
        let mut variants = Variants { rules: &mut self.rules, known: HashMap::new() };
        for (at, key, limit) in limits {
            let variant = variants.of(at, limit);
            self.overrides.by_rule.entry(at).or_default().insert(key, variant);
        }
    }
}

/// A rule's limit with the numbers of an override.
fn limit(rule: &Rule, allows: Allowance) -> Result<Limit, String> {
    let (requests, burst) = match allows {
        Allowance::Unlimited => return Ok(Limit::Unlimited),
        Allowance::Deny => return Ok(Limit::Deny),
        Allowance::Requests { requests, burst } => (requests, burst),
    };
    let Some(policy) = rule.limit.policy() else {
        return Err(format!("rule `{}` counts nothing, so it has no numbers to override", rule.id));
    };
    let quota = Quota { requests, burst, ..*policy.quota() };
    let policy = Policy::new(policy.algorithm(), quota).map_err(|error| error.to_string())?;
    Ok(Limit::Policy(policy))
}
