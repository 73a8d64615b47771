//! Rules that keep what was used when their algorithm or window changes (`on_change: keep`).
//!
//! Such a change gives a rule counters of another kind under other names. A rule that is to keep what was
//! used remembers what it was, for as long as its old counters can hold anything, so that whoever is charged
//! next can be charged what they had used before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use super::RuleSet;
use crate::facts::Facts;
use crate::rule::{OnChange, Rule, counter_key};

/// What a rule was before its algorithm or window changed.
#[derive(Debug)]
pub struct RulePredecessor {
    policy: Policy,
    namespace: Fingerprint,
    /// From when on its counters hold nothing.
    expires_at: Timestamp,
    expired: AtomicBool,
}

impl RulePredecessor {
    /// What it allowed.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The counter that a request with these facts was charged to.
    #[must_use]
    pub fn key<'a>(&self, rule: &'a Rule, facts: &Facts<'_>, set: &RuleSet) -> Key<'a> {
        let fingerprint = set.owner_fingerprint(&rule.parts, facts) ^ self.namespace;
        counter_key(rule, fingerprint, self.namespace)
    }

    /// Somebody has read the store's clock: after its time a predecessor is not asked any more.
    pub fn update_expiry(&self, now: Timestamp) {
        if now >= self.expires_at {
            self.expired.store(true, Ordering::Relaxed);
        }
    }

    fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }
}

impl Rule {
    /// What it was, if what was used then still counts.
    #[must_use]
    pub fn predecessor(&self) -> Option<&RulePredecessor> {
        self.predecessor.as_deref().filter(|before| !before.is_expired())
    }

    /// Remembers what the rule of the same id was.
    pub(crate) fn remember_predecessor(&mut self, previous: Option<&Self>, now: Timestamp) {
        let (OnChange::Keep, Some(previous)) = (self.on_change, previous) else { return };
        if self.parts != previous.parts || self.generation != previous.generation {
            // Other people's counters, or all of them are to be left behind.
            return;
        }
        if self.limit.counter_identity() == previous.limit.counter_identity() {
            self.predecessor =
                previous.predecessor.clone().filter(|before| before.expires_at > now);
            return;
        }
        let Some(policy) = previous.limit.policy().filter(|_| self.limit.policy().is_some()) else {
            return;
        };
        // A counter of the window before counts as long again.
        let until = now.plus(policy.period()).plus(policy.period());
        let (policy, namespace, over) = (*policy, previous.namespace, AtomicBool::new(false));
        self.predecessor =
            Some(Arc::new(RulePredecessor { policy, namespace, expires_at: until, expired: over }));
    }
}
