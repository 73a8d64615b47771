//! Carries over usage when a rule's algorithm, window or number of parts changes (`on_change:
//! keep`).
//!
//! Such a change gives the rule new counters. The rule keeps its previous policy for as long as the
//! old counters can hold usage, so that the limiter can charge it to the new counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use super::RuleSet;
use crate::facts::Facts;
use crate::rule::{OnChange, Rule, SplitPart, counter_key};

/// The policy of a rule before its algorithm, window or number of parts changed.
#[derive(Debug)]
pub struct RulePredecessor {
    policy: Policy,
    namespace: Fingerprint,
    /// The parts of a counter, if it was split.
    parts: Vec<(SplitPart, Policy)>,
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

    /// The previous counter of a request with these facts. If it was split, the key is that of no
    /// counter, but [`counters`](Self::counters) returns its parts.
    #[must_use]
    pub fn key<'a>(&self, rule: &'a Rule, facts: &Facts<'_>, set: &RuleSet) -> Key<'a> {
        let fingerprint = set.owner_fingerprint(&rule.parts, facts) ^ self.namespace;
        counter_key(rule, fingerprint, self.namespace)
    }

    /// The counters in the store that a previous [key](Self::key) stands for, and their policies.
    #[must_use]
    pub fn counters<'a>(&self, key: Key<'a>) -> Vec<(Key<'a>, &Policy)> {
        match self.parts.is_empty() {
            true => vec![(key, &self.policy)],
            false => self.parts.iter().map(|(part, policy)| (part.key(key), policy)).collect(),
        }
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
    /// `set` is the rule set of the previous version.
    pub(crate) fn remember_predecessor(
        &mut self,
        previous: Option<&Self>,
        set: &RuleSet,
        now: Timestamp,
    ) {
        let (OnChange::Keep, Some(previous)) = (self.on_change, previous) else { return };
        if self.parts != previous.parts || self.generation != previous.generation {
            // The counters have other owners, or the new generation discards them.
            return;
        }
        let identity =
            |rule: &Self| (rule.document_limit().counter_identity(), rule.counter_count());
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
        let parts = previous.split_parts().filter_map(|at| {
            let part = set.get(at)?;
            Some((*part.split_part()?, *part.limit.policy()?))
        });
        let parts = parts.collect();
        self.predecessor =
            Some(Arc::new(RulePredecessor { policy, namespace, parts, expires_at, expired }));
    }
}
