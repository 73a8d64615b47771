//! Usage migration: when a rule's algorithm, window or number of parts changes, usage on the old
//! counter is charged to the new one (`on_change: keep`). This happens at the first request of a
//! client whose old counter is still in use. Usage of all old parts is divided among all new parts.
//!
//! The new counter is charged before the old one is reset. Two concurrent requests may both migrate
//! the usage; that counts too much, never too little.

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::key::Key;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_rules::{Facts, MatchedRules, Rule, RuleSet};

use crate::limiter::Limiter;
use crate::plan::PlanReadings;
use crate::split::divided_charges;
use crate::unsettled_usage::used;

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
            let _ = self.migrate_counter(rules, rule, old, new).await;
        }
    }

    /// Charges the usage of a rule's old counter to its new one. Returns `None` if the store did
    /// not answer.
    pub(crate) async fn migrate_counter(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        old: Key<'_>,
        new: Key<'_>,
    ) -> Option<()> {
        let (before, policy) = (rule.predecessor()?, rule.limit().policy()?);
        let counters = before.counters(old);
        let old: SmallVec<[Charge<'_>; 1]> =
            counters.iter().map(|(key, policy)| Charge::plain(*key, policy, 1)).collect();
        let readings = self.apply_charges(Op::Peek, &old).await?;
        let now = readings.iter().map(|reading| reading.now).min()?;
        before.update_expiry(now);
        let used: u64 = readings.iter().map(used).sum();
        if used > 0 {
            let new = Charge::plain(new, policy, used.min(policy.limit()));
            self.apply_charges(Op::Force, &divided_charges(new, rule, rules)).await?;
            self.apply_charges(Op::Reset, &old).await?;
        }
        Some(())
    }

    async fn apply_charges(&self, op: Op, charges: &[Charge<'_>]) -> Option<PlanReadings> {
        let mut readings: PlanReadings = SmallVec::from_elem(Reading::default(), charges.len());
        self.store.apply(op, charges, &mut readings).await.ok()?;
        Some(readings)
    }
}
