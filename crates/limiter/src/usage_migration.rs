//! Usage migration: when a rule's algorithm or window changes, usage on the old counter is charged
//! to the new one (`on_change: keep`). This happens at the first request of a client whose old
//! counter is still in use.
//!
//! The new counter is charged before the old one is reset. Two concurrent requests may both migrate
//! the usage; that counts too much, never too little.

use tidegate_core::decision::Reading;
use tidegate_core::key::Key;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_rules::{Facts, MatchedRules, Rule, RuleSet};

use crate::limiter::Limiter;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Migrates the client's usage from the counters of changed rules. Unchanged rules cost nothing
    /// here.
    pub(crate) async fn migrate_usage(&self, rules: &RuleSet, facts: &Facts<'_>) {
        let mut completed = facts.borrowed();
        rules.enrich(&mut completed);
        let mut matches = MatchedRules::new();
        rules.match_rules(&completed, &mut matches);
        for at in matches {
            let rule = &rules[rules.variant_for(at, &completed)];
            let Some(before) = rule.predecessor() else { continue };
            let old = before.key(rule, &completed, rules);
            let new = rule.key(rule.fingerprint(&completed, rules));
            // If the store is unreachable, the next decision tries again.
            let _ = self.migrate_counter(rule, old, new).await;
        }
    }

    /// Charges the usage of a rule's old counter to its new one. Returns `None` if the store did
    /// not answer.
    pub(crate) async fn migrate_counter(
        &self,
        rule: &Rule,
        old: Key<'_>,
        new: Key<'_>,
    ) -> Option<()> {
        let (before, policy) = (rule.predecessor()?, rule.limit().policy()?);
        let old = Charge::plain(old, before.policy(), 1);
        let reading = self.apply_one(Op::Peek, &old).await?;
        before.update_expiry(reading.now);
        let used = reading.limit.saturating_sub(reading.remaining);
        if used > 0 {
            let new = Charge::plain(new, policy, used.min(policy.limit()));
            self.apply_one(Op::Force, &new).await?;
            self.apply_one(Op::Reset, &old).await?;
        }
        Some(())
    }

    async fn apply_one(&self, op: Op, charge: &Charge<'_>) -> Option<Reading> {
        let mut readings = [Reading::default()];
        self.store.apply(op, std::slice::from_ref(charge), &mut readings).await.ok()?;
        Some(readings[0])
    }
}
