//! Settlement: writes the usage that local shares admitted during an outage to the store.
//!
//! This crate starts no tasks; the program calls [`Limiter::settle`] periodically.

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

/// Maximum number of keys settled per call.
const MAX_KEYS_PER_CALL: usize = 64;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Whether local shares admitted usage that the store has not counted yet.
    #[must_use]
    pub fn has_unsettled(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.unsettled.has_any())
    }

    /// Usage that local shares admitted and the store will never count, since the process started:
    /// writes that may have been lost, and usage of keys beyond the maximum. Exported as a metric.
    #[must_use]
    pub fn lost_usage(&self) -> u64 {
        self.local.as_ref().map_or(0, |local| local.unsettled.lost_usage())
    }

    /// Writes some unsettled usage to the store and returns the number of keys that it settled.
    /// Each call does a bounded amount of work; call it every few hundred milliseconds while
    /// [`has_unsettled`](Self::has_unsettled) returns true. It does nothing while the store is
    /// unreachable.
    ///
    /// Usage is removed once the store has counted it, or may have: a write whose response was lost
    /// is not repeated. A write that the store definitely did not execute is retried. A lost write
    /// admits one share too much for a key, once; a repeated write would refuse requests wrongly.
    ///
    /// If the store's response came too late, the store may have counted a request that a share
    /// then admitted. A single node detects this and does not write the request again. With several
    /// nodes it is undetectable, and the request counts twice. This concerns the requests in flight
    /// until the circuit breaker opened, and errs on the strict side.
    pub async fn settle(&self) -> usize {
        let Some(local) = &self.local else { return 0 };
        let rules = self.rules();
        let owed = local.unsettled.next_batch(MAX_KEYS_PER_CALL);
        let mut due: Vec<PendingWrite<'_>> = Vec::with_capacity(owed.len());
        for (key, owed) in &owed {
            match PendingWrite::new(*key, owed, &rules) {
                Some(one) => due.push(one),
                // No active rule uses that counter.
                None => local.unsettled.clear(*key),
            }
        }
        let dropped = owed.len() - due.len();
        // A peek changes nothing, so it may fail. It shows which parts of the store are reachable.
        let reached = peek_counters(&self.store, due, |due| due.charge(1)).await;
        let due = reached
            .into_iter()
            .map(|(due, store_reading)| PendingWrite { store_reading, ..due })
            .collect();
        let due =
            peek_counters(&local.store, due, |due| Charge::plain(due.key, due.share, 1)).await;
        dropped + self.write_unsettled(local, &due).await
    }

    /// Writes unsettled usage to the store and returns the number of keys settled. Each key comes
    /// with the reading of its local counter.
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
        let mut readings = vec![Reading::default(); charges.len()];
        let Err(error) = self.store.apply(Op::Force, &charges, &mut readings).await else {
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

    /// Applies a plan to the store, except for keys that have unsettled usage on a single node. For
    /// those, only the local bucket has counted everything that was admitted. They are reported as
    /// not answered.
    pub(crate) async fn apply_to_settled(
        &self,
        local: &LocalFallback<L>,
        op: Op,
        plan: &ChargePlan<'_>,
        rules: &RuleSet,
        numbers: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let decides = matches!(op, Op::Charge | Op::Force | Op::Peek) && local.is_single_node();
        let is_settled = |i: &usize| {
            let is_unsettled = || local.unsettled.contains(plan.charges[*i].key.fingerprint);
            !(decides && plan.on_fail(*i, rules) == OnFail::Local && is_unsettled())
        };
        let settled: SmallVec<[usize; 4]> = (0..plan.charges.len()).filter(is_settled).collect();
        if settled.len() == plan.charges.len() {
            return self.store.apply(op, &plan.charges, numbers).await;
        }
        let mut error = StoreError::not_applied(
            "the store has not yet counted requests that this node admitted",
        );
        if settled.is_empty() {
            return Err(error);
        }
        let charges: SmallVec<[Charge<'_>; 4]> = settled.iter().map(|i| plan.charges[*i]).collect();
        let mut readings: PlanReadings = SmallVec::from_elem(Reading::default(), charges.len());
        let answer = self.store.apply(op, &charges, &mut readings).await;
        settled.iter().zip(readings).for_each(|(i, reading)| numbers[*i] = reading);
        match answer {
            // The deny cache's refusal decides the whole request, and nothing was charged.
            Ok(AnsweredBy::DenyCache) => return Ok(AnsweredBy::DenyCache),
            Ok(_) => error.answered = settled.to_vec(),
            Err(part) => {
                error.reason = part.reason;
                error.answered = part.answered.iter().map(|i| settled[*i]).collect();
                error.unknown = part.unknown.iter().map(|i| settled[*i]).collect();
            }
        }
        Err(error)
    }
}

/// A key's unsettled usage to be written, with its counters.
#[derive(Clone, Copy)]
struct PendingWrite<'a> {
    key: Key<'a>,
    /// Policy of the store's counter, under the active rules.
    policy: &'a Policy,
    /// Policy of the local counter, under the rules that admitted the usage.
    share: &'a Policy,
    /// Reading of the store's counter.
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

    /// The cost that a single node writes: the amount that raises the store's counter to the local
    /// one, which was charged for everything admitted. The store may have counted a request whose
    /// response was lost, or may have lost its data. Both counters show whole requests, so one
    /// request may stand for a fraction.
    fn cost_for_single_node(&self, owed: &UnsettledEntry, here: &Reading) -> u64 {
        // A counter never shows more than its limit as used, and the limit may have been lowered
        // meanwhile.
        let (here, there) = (used(here).min(self.store_reading.limit), used(&self.store_reading));
        let enough = (here + 1).saturating_sub(there);
        // A charge stays in a sliding window for the window's full length, so do not write more
        // than was admitted recently.
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

/// Peeks at the counters of pending writes and drops those for which the store does not answer.
async fn peek_counters<'a, S: Store>(
    store: &S,
    due: Vec<PendingWrite<'a>>,
    charge: impl Fn(&PendingWrite<'a>) -> Charge<'a>,
) -> Vec<(PendingWrite<'a>, Reading)> {
    if due.is_empty() {
        return Vec::new();
    }
    let charges: Vec<Charge<'_>> = due.iter().map(charge).collect();
    let mut readings = vec![Reading::default(); charges.len()];
    match store.apply(Op::Peek, &charges, &mut readings).await {
        Ok(_) => due.into_iter().zip(readings).collect(),
        Err(error) => error.answered.iter().map(|i| (due[*i], readings[*i])).collect(),
    }
}

/// The active rule that uses the counter of the unsettled usage, if there is one.
fn current_rule<'a>(owed: &UnsettledEntry, rules: &'a Arc<RuleSet>) -> Option<&'a Rule> {
    rules.get(successor_rule(owed.quotas.rules(), owed.rule, rules)?)
}
