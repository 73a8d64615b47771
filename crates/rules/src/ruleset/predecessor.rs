//! Carries over usage when a rule's algorithm or window changes (`on_change: keep`).
//!
//! Such a change gives the rule new counters of a different kind. The rule keeps its previous
//! policy for as long as the old counters can hold usage, so that the limiter can charge it to the
//! new counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use super::RuleSet;
use crate::facts::Facts;
use crate::rule::{OnChange, Rule, counter_key};

/// The policy of a rule before its algorithm or window changed.
#[derive(Debug)]
pub struct RulePredecessor {
    policy: Policy,
    namespace: Fingerprint,
    /// When its counters have expired.
    expires_at: Timestamp,
    expired: AtomicBool,
}

impl RulePredecessor {
    /// The previous policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The previous counter of a request with these facts.
    #[must_use]
    pub fn key<'a>(&self, rule: &'a Rule, facts: &Facts<'_>, set: &RuleSet) -> Key<'a> {
        let fingerprint = set.owner_fingerprint(&rule.parts, facts) ^ self.namespace;
        counter_key(rule, fingerprint, self.namespace)
    }

    /// Marks the predecessor as expired if its time has passed. Called with the store's time.
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
    /// The predecessor, if its usage still counts.
    #[must_use]
    pub fn predecessor(&self) -> Option<&RulePredecessor> {
        self.predecessor.as_deref().filter(|before| !before.is_expired())
    }

    /// Stores the previous version of the rule as its predecessor, if usage is to be carried over.
    pub(crate) fn remember_predecessor(&mut self, previous: Option<&Self>, now: Timestamp) {
        let (OnChange::Keep, Some(previous)) = (self.on_change, previous) else { return };
        if self.parts != previous.parts || self.generation != previous.generation {
            // The counters have other owners, or the new generation discards them.
            return;
        }
        let identity = |rule: &Self| rule.document_limit().counter_identity();
        if identity(self) == identity(previous) {
            self.predecessor =
                previous.predecessor.clone().filter(|before| before.expires_at > now);
            return;
        }
        let Some(policy) = previous.limit.policy().filter(|_| self.limit.policy().is_some()) else {
            return;
        };
        // A sliding window also counts usage of the previous window, so keep the counter for two.
        let expires_at = now.plus(policy.period()).plus(policy.period());
        let (policy, namespace, expired) = (*policy, previous.namespace, AtomicBool::new(false));
        self.predecessor =
            Some(Arc::new(RulePredecessor { policy, namespace, expires_at, expired }));
    }
}
