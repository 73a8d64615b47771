//! Settling: the store learns what was admitted on local shares while it was gone.
//!
//! There is no runtime here; a task of the program calls [`Limiter::settle`] again and again.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_rules::{OnFail, Rule, RuleSet};

use crate::limiter::Limiter;
use crate::local_fallback::LocalFallback;
use crate::plan::{ChargePlan, PlanReadings};
use crate::receipt::successor_rule;
use crate::unsettled_usage::{UnsettledEntry, used};

/// Keys that one call settles at most.
const MAX_KEYS_PER_CALL: usize = 64;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Whether something was admitted on local shares that the store does not know of yet.
    #[must_use]
    pub fn has_unsettled(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.unsettled.has_any())
    }

    /// What was admitted on local shares and the store will never know of, since the start: a write
    /// that may have been lost, or more keys in an outage than are remembered. For a metric.
    #[must_use]
    pub fn lost_usage(&self) -> u64 {
        self.local.as_ref().map_or(0, |local| local.unsettled.lost_usage())
    }

    /// Writes some of what is owed to the store and returns how many keys owe nothing any more: a
    /// bounded step, to be called every few hundred milliseconds while [`has_unsettled`](Self::has_unsettled) says so.
    /// While the store is gone it does nothing.
    ///
    /// A debt leaves the books when the store has taken it, or may have: what was sent and not
    /// answered is not sent again. What the store certainly did not do stays owed. A write that is
    /// lost admits a key one share more, once; one that is done twice would refuse it wrongly.
    ///
    /// A request that a share admitted because the store's answer came too late may have been
    /// counted by the store as well. A node that is alone sees that and does not write it again; of
    /// several nodes none can, and it counts twice. Those are the requests that were under way until
    /// a breaker opened, and they are on the strict side.
    pub async fn settle(&self) -> usize {
        let Some(local) = &self.local else { return 0 };
        let rules = self.rules();
        let owed = local.unsettled.next_batch(MAX_KEYS_PER_CALL);
        let mut due: Vec<PendingWrite<'_>> = Vec::with_capacity(owed.len());
        for (key, owed) in &owed {
            match PendingWrite::new(*key, owed, &rules) {
                Some(one) => due.push(one),
                // No rule looks at that counter any more.
                None => local.unsettled.clear(*key),
            }
        }
        let dropped = owed.len() - due.len();
        // A look changes nothing, so it may fail: it says which part of the store is there.
        let reached = peek_counters(&self.store, due, |due| due.charge(1)).await;
        let due = reached
            .into_iter()
            .map(|(due, stands)| PendingWrite { store_reading: stands, ..due })
            .collect();
        let due =
            peek_counters(&local.store, due, |due| Charge::plain(due.key, due.share, 1)).await;
        dropped + self.write_unsettled(local, &due).await
    }

    /// Writes debts to the store, and returns how many left the books. Each comes with how its
    /// counter stands here.
    async fn write_unsettled(
        &self,
        local: &LocalFallback<L>,
        due: &[(PendingWrite<'_>, Reading)],
    ) -> usize {
        let is_alone = local.is_single_node();
        let mut owed: Vec<(Fingerprint, UnsettledEntry)> = Vec::with_capacity(due.len());
        let mut charges = Vec::with_capacity(due.len());
        for (due, here) in due {
            let key = due.key.fingerprint;
            let Some(taken) = local.unsettled.take(key, here) else { continue };
            let cost = if is_alone { due.cost_for_single_node(&taken, here) } else { taken.cost };
            if cost > 0 {
                owed.push((key, taken));
                charges.push(due.charge(cost));
            }
        }
        if charges.is_empty() {
            return due.len();
        }
        let mut told = vec![Reading::default(); charges.len()];
        let Err(error) = self.store.apply(Op::Force, &charges, &mut told).await else {
            return due.len();
        };
        let mut kept = 0;
        for (i, (key, owed)) in owed.iter().enumerate() {
            if error.unknown.contains(&i) {
                local.unsettled.add_lost(charges[i].cost);
            } else if !error.answered.contains(&i) {
                local.unsettled.restore(*key, owed);
                kept += 1;
            }
        }
        due.len() - kept
    }

    /// Asks the store for a plan, but not for keys of a node that is alone and still owes for them:
    /// its own bucket knows all that was admitted, the store does not. Those are not answered.
    pub(crate) async fn apply_to_settled(
        &self,
        local: &LocalFallback<L>,
        op: Op,
        plan: &ChargePlan<'_>,
        rules: &RuleSet,
        numbers: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let decides = matches!(op, Op::Charge | Op::Force | Op::Peek) && local.is_single_node();
        let is_asked = |i: &usize| {
            let owes = || local.unsettled.contains(plan.charges[*i].key.fingerprint);
            !(decides && plan.on_fail(*i, rules) == OnFail::Local && owes())
        };
        let asked: SmallVec<[usize; 4]> = (0..plan.charges.len()).filter(is_asked).collect();
        if asked.len() == plan.charges.len() {
            return self.store.apply(op, &plan.charges, numbers).await;
        }
        let mut error =
            StoreError::not_applied("the store does not know yet what was admitted here");
        if asked.is_empty() {
            return Err(error);
        }
        let charges: SmallVec<[Charge<'_>; 4]> = asked.iter().map(|i| plan.charges[*i]).collect();
        let mut told: PlanReadings = SmallVec::from_elem(Reading::default(), charges.len());
        let answer = self.store.apply(op, &charges, &mut told).await;
        asked.iter().zip(told).for_each(|(i, told)| numbers[*i] = told);
        match answer {
            // A remembered refusal is the answer to the whole request, and nothing was charged.
            Ok(AnsweredBy::DenyCache) => return Ok(AnsweredBy::DenyCache),
            Ok(_) => error.answered = asked.to_vec(),
            Err(part) => {
                error.reason = part.reason;
                error.answered = part.answered.iter().map(|i| asked[*i]).collect();
                error.unknown = part.unknown.iter().map(|i| asked[*i]).collect();
            }
        }
        Err(error)
    }
}

/// One key's debt, with the counters that it is in.
#[derive(Clone, Copy)]
struct PendingWrite<'a> {
    key: Key<'a>,
    /// The store's counter, under the rules in force.
    policy: &'a Policy,
    /// The local one, under those that admitted it.
    share: &'a Policy,
    /// How the store's counter stands.
    store_reading: Reading,
}

impl<'a> PendingWrite<'a> {
    fn new(
        fingerprint: Fingerprint,
        owed: &'a UnsettledEntry,
        rules: &'a Arc<RuleSet>,
    ) -> Option<Self> {
        let rule = current_rule(owed, rules)?;
        let (policy, share) = (rule.limit().policy()?, owed.share()?);
        Some(Self { key: rule.key(fingerprint), policy, share, store_reading: Reading::default() })
    }

    const fn charge(&self, cost: u64) -> Charge<'a> {
        Charge::plain(self.key, self.policy, cost)
    }

    /// What a node that is alone writes: as much as brings the store's counter to its own, which was
    /// charged all that was admitted. The store may have counted a request whose answer it could not
    /// deliver, and it may have lost its data. Both show whole requests, so that one of them may
    /// stand for a part.
    fn cost_for_single_node(&self, owed: &UnsettledEntry, here: &Reading) -> u64 {
        // A counter shows no more as used than its limit, which may have been lowered meanwhile.
        let (here, there) = (used(here).min(self.store_reading.limit), used(&self.store_reading));
        let enough = (here + 1).saturating_sub(there);
        // What is charged now stays in a sliding window for its whole length, so no more is written
        // than was admitted lately.
        let is_sliding = matches!(
            self.policy.algorithm(),
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter
        );
        match there.saturating_add(owed.cost) < here {
            true if !is_sliding => enough,
            _ => owed.cost.min(enough),
        }
    }
}

/// How the counters of debts stand in a store, without those that it does not answer for.
async fn peek_counters<'a, S: Store>(
    store: &S,
    due: Vec<PendingWrite<'a>>,
    charge: impl Fn(&PendingWrite<'a>) -> Charge<'a>,
) -> Vec<(PendingWrite<'a>, Reading)> {
    if due.is_empty() {
        return Vec::new();
    }
    let charges: Vec<Charge<'_>> = due.iter().map(charge).collect();
    let mut told = vec![Reading::default(); charges.len()];
    match store.apply(Op::Peek, &charges, &mut told).await {
        Ok(_) => due.into_iter().zip(told).collect(),
        Err(error) => error.answered.iter().map(|i| (due[*i], told[*i])).collect(),
    }
}

/// The rule in force that goes on with the counter of a debt, if there is one.
fn current_rule<'a>(owed: &UnsettledEntry, rules: &'a Arc<RuleSet>) -> Option<&'a Rule> {
    rules.get(successor_rule(owed.quotas.rules(), owed.rule, rules)?)
}
