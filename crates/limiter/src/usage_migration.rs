//! What was used under a rule's old algorithm or window is charged to its new counter, when somebody comes
//! whose old counter still holds something (`on_change: keep`).
//!
//! The new counter is charged before the old one is forgotten. Two who come at once may both charge it: then
//! too much is kept, never too little.

use tidegate_core::decision::Reading;
use tidegate_core::key::Key;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_rules::{Facts, MatchedRules, Rule, RuleSet};

use crate::limiter::Limiter;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Carries over what whoever the facts describe used before rules changed. Rules that did not change
    /// cost nothing here.
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
            // While the store is gone there is nothing to be known; the next decision asks again.
            let _ = self.migrate_counter(rule, old, new).await;
        }
    }

    /// Carries over what a rule's old counter holds to its new one.
    pub(crate) async fn migrate_counter(
        &self,
        rule: &Rule,
        old: Key<'_>,
        new: Key<'_>,
    ) -> Option<()> {
        let (before, policy) = (rule.predecessor()?, rule.limit().policy()?);
        let old = Charge::plain(old, before.policy(), 1);
        let was = self.apply_one(Op::Peek, &old).await?;
        before.update_expiry(was.now);
        let used = was.limit.saturating_sub(was.remaining);
        if used > 0 {
            let new = Charge::plain(new, policy, used.min(policy.limit()));
            self.apply_one(Op::Force, &new).await?;
            self.apply_one(Op::Reset, &old).await?;
        }
        Some(())
    }

    async fn apply_one(&self, op: Op, charge: &Charge<'_>) -> Option<Reading> {
        let mut told = [Reading::default()];
        self.store.apply(op, std::slice::from_ref(charge), &mut told).await.ok()?;
        Some(told[0])
    }
}
