//! The node's own buckets, for rules with `on_fail: local`: kept warm while the store answers,
//! decided on while it does not.
//!
//! They are counters of a second store under the same keys, on this node's share of each limit. The
//! share follows the number of nodes that the store knows of; while it is gone, that is the number
//! that was last known.

use std::sync::Arc;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::RuleSet;

use crate::decision::CounterLocation;
use crate::fallback::FALLBACK_RETRY_AFTER;
use crate::node_quotas::NodeQuotas;
use crate::plan::{ChargePlan, PlanReadings};
use crate::receipt::Receipt;
use crate::unsettled_usage::{UnsettledUsage, used};

/// No local store. Rules with `on_fail: local` then let requests pass while the store is gone, which
/// is right where the store is in the process itself and never is.
#[derive(Debug)]
pub enum NoFallback {}

impl Store for NoFallback {
    async fn apply(
        &self,
        _: Op,
        _: &[Charge<'_>],
        _: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        match *self {}
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match *self {}
    }
}

/// A local store with this node's shares, and what it admitted that the store does not know of.
#[derive(Debug)]
pub(crate) struct LocalFallback<L> {
    pub(crate) store: L,
    quotas: ArcSwap<NodeQuotas>,
    pub(crate) unsettled: UnsettledUsage,
}

impl<L: Store> LocalFallback<L> {
    pub(crate) fn new(store: L, rules: Arc<RuleSet>, nodes: u32) -> Self {
        let quotas = ArcSwap::from_pointee(NodeQuotas::new(rules, nodes));
        Self { store, quotas, unsettled: UnsettledUsage::default() }
    }

    /// Shares the limits of another rule set among a number of nodes.
    pub(crate) async fn install(&self, rules: &Arc<RuleSet>, nodes: u32) {
        let now = self.now().await;
        self.quotas.rcu(|shares| shares.updated(Arc::clone(rules), nodes, now));
    }

    /// Shares the limits among a number of nodes.
    pub(crate) async fn divide_among(&self, nodes: u32) {
        if self.quotas.load().nodes() != nodes {
            let now = self.now().await;
            self.quotas.rcu(|shares| shares.updated(Arc::clone(shares.rules()), nodes, now));
        }
    }

    /// Whether there is no other node: the shares are the whole limits.
    pub(crate) fn is_single_node(&self) -> bool {
        self.quotas.load().nodes() <= 1
    }

    /// Follows a store that answered for all of a plan.
    pub(crate) async fn mirror_all(
        &self,
        op: Op,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &[Reading],
    ) {
        let all: SmallVec<[usize; 4]> = (0..plan.charges.len()).collect();
        plan.local_charged_at = self.mirror_charges(op, plan, rules, numbers, &all).await;
    }

    /// Does to the local buckets what the store did to its own: charges what was charged, whether it
    /// fits the share or not, refunds and resets. Returns the local clock.
    ///
    /// `by_store` are the charges that the store answered.
    pub(crate) async fn mirror_charges(
        &self,
        op: Op,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &[Reading],
        by_store: &[usize],
    ) -> Timestamp {
        let (op, mut which): (Op, SmallVec<[usize; 4]>) = match op {
            Op::Charge | Op::Force => (Op::Force, plan.made_charges(op, numbers).collect()),
            Op::Refund { .. } | Op::Reset => (op, by_store.iter().copied().collect()),
            Op::Peek | Op::Renew { .. } => return Timestamp::EPOCH,
        };
        which.retain(|i| by_store.contains(i));
        let shares = self.quotas_for(rules).await;
        let mut batch = LocalBatch::new(plan, &shares, &which);
        if batch.charges.is_empty() || batch.apply(op, &self.store).await.is_err() {
            return Timestamp::EPOCH;
        }
        for (charge, told) in batch.charges.iter().zip(&batch.readings) {
            match op {
                Op::Force => self.unsettled.cap_to_usage(charge.key.fingerprint, charge.cost, told),
                Op::Reset => self.unsettled.clear(charge.key.fingerprint),
                _ => {}
            }
        }
        batch.readings[0].now
    }

    /// Answers the charges `which`, all or none of them; `refused` says that another part of the
    /// request is refused already. What is admitted becomes a debt to the store.
    ///
    /// `numbers` tells what is said to all other charges.
    ///
    /// # Errors
    /// When the local store does not answer.
    pub(crate) async fn decide_locally(
        &self,
        op: Op,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        which: &[usize],
        refused: bool,
        numbers: &mut [Reading],
    ) -> Result<(), StoreError> {
        let shares = self.quotas_for(rules).await;
        let mut batch = LocalBatch::new(plan, &shares, which);
        let mut before = PlanReadings::new();
        if matches!(op, Op::Refund { .. }) {
            batch.apply(Op::Peek, &self.store).await?;
            before = batch.readings.clone();
        }
        if refused && op == Op::Charge {
            batch.force_refusal();
        }
        batch.apply(op, &self.store).await?;
        for (i, told) in batch.indices.iter().zip(&batch.readings) {
            numbers[*i] = to_local_reading(&plan.charges[*i], *told);
        }
        for i in plan.made_charges(op, numbers).filter(|i| batch.indices.contains(i)) {
            let Charge { key, policy, cost, .. } = plan.charges[i];
            // Slots move to the store when they are renewed: written now, nobody would release them.
            if policy.is_concurrency() {
                continue;
            }
            self.unsettled.record(
                key.fingerprint,
                plan.rule_index(i),
                &shares,
                cost,
                numbers[i].now,
            );
        }
        for (i, before) in batch.indices.iter().zip(&before) {
            let back = used(before).saturating_sub(used(&numbers[*i]));
            self.unsettled.subtract_refund(plan.charges[*i].key.fingerprint, back);
        }
        if op == Op::Reset {
            batch
                .indices
                .iter()
                .for_each(|i| self.unsettled.clear(plan.charges[*i].key.fingerprint));
        }
        Ok(())
    }

    /// Takes back what the local buckets were charged, because a share admitted it or because the store
    /// had.
    pub(crate) async fn refund_receipt(&self, receipt: &Receipt) {
        let shares = self.quotas_for(&receipt.rules).await;
        for charged in &receipt.items {
            let Some(share) = shares.policy_for(charged.rule) else { continue };
            let charge = receipt.charge_with(charged, share, charged.cost);
            match charged.counter {
                CounterLocation::Store => {
                    _ = self.refund_charge(&charge, charged.local_charged_at).await;
                }
                CounterLocation::Local => {
                    let back = self.refund_charge(&charge, charged.charged_at).await;
                    self.unsettled.subtract_refund(charged.fingerprint, back);
                }
            }
        }
    }

    /// Holds slots on in the local store: those that shares gave, and those that the store holds.
    pub(crate) async fn renew(&self, receipt: &mut Receipt) {
        let shares = self.quotas_for(&receipt.rules).await;
        for i in 0..receipt.items.len() {
            let mut charged = receipt.items[i];
            let Some(share) = shares.policy_for(charged.rule) else { continue };
            let charge = [receipt.charge_with(&charged, share, charged.cost)];
            let (renew, mut told) =
                (Op::Renew { charged_at: *charged.local_charged_at_mut() }, [Reading::default()]);
            if self.store.apply(renew, &charge, &mut told).await.is_ok() {
                *receipt.items[i].local_charged_at_mut() = told[0].now;
            }
        }
    }

    /// Refunds one charge and says how much of it came back.
    async fn refund_charge(&self, charge: &Charge<'_>, charged_at: Timestamp) -> u64 {
        let (charge, mut before, mut after) =
            ([*charge], [Reading::default()], [Reading::default()]);
        let refund = Op::Refund { charged_at };
        let looked = self.store.apply(Op::Peek, &charge, &mut before).await;
        let refunded = self.store.apply(refund, &charge, &mut after).await;
        match looked.and(refunded) {
            Ok(_) => used(&before[0]).saturating_sub(used(&after[0])),
            Err(_) => 0,
        }
    }

    /// The shares of a rule set: the ones in force, unless the request began under other rules.
    async fn quotas_for(&self, rules: &Arc<RuleSet>) -> Arc<NodeQuotas> {
        let shares = self.quotas.load_full();
        if Arc::ptr_eq(shares.rules(), rules) {
            return shares;
        }
        let now = self.now().await;
        Arc::new(shares.updated(Arc::clone(rules), shares.nodes(), now))
    }

    async fn now(&self) -> Timestamp {
        self.store.now().await.unwrap_or_default()
    }
}

/// Some charges of a plan, on their rules' shares.
struct LocalBatch<'a> {
    /// Their places in the plan.
    indices: SmallVec<[usize; 4]>,
    charges: SmallVec<[Charge<'a>; 4]>,
    readings: PlanReadings,
}

impl<'a> LocalBatch<'a> {
    /// Those of the charges `which` whose rules have a share.
    fn new<'p: 'a>(plan: &ChargePlan<'p>, shares: &'a NodeQuotas, which: &[usize]) -> Self {
        let shared = which.iter().filter_map(|i| {
            let (charge, policy): (Charge<'a>, _) =
                (plan.charges[*i], shares.policy_for(plan.rule_index(*i))?);
            Some((*i, Charge { policy, ..charge }))
        });
        let (indices, charges) = shared.unzip();
        Self { indices, charges, readings: PlanReadings::new() }
    }

    /// Has the batch refused as a whole, by a charge that never fits: strikes towards a ban and what
    /// is charged always are then as in any other refused batch.
    fn force_refusal(&mut self) {
        if let Some(Charge { policy, .. }) = self.charges.first().copied() {
            let key = Key::without_namespace("", Fingerprint::default());
            self.charges.push(Charge::plain(key, policy, u64::MAX));
        }
    }

    async fn apply<L: Store>(&mut self, op: Op, store: &L) -> Result<AnsweredBy, StoreError> {
        self.readings = SmallVec::from_elem(Reading::default(), self.charges.len());
        store.apply(op, &self.charges, &mut self.readings).await
    }
}

/// What a share says to a charge: one that only the whole limit holds need not wait for ever.
fn to_local_reading(charge: &Charge<'_>, told: Reading) -> Reading {
    let fits_the_limit = charge.cost <= charge.policy.limit();
    match told.retry {
        Retry::Never if fits_the_limit => {
            Reading { retry: Retry::After(FALLBACK_RETRY_AFTER), ..told }
        }
        _ => told,
    }
}
