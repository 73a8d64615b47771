//! Local buckets of this node for rules with `on_fail: local`. They mirror the store's charges
//! while the store answers, and decide requests while it does not.
//!
//! The buckets are counters in a second store, with the same keys and with this node's share of
//! each limit. The share depends on the number of nodes that the store reports; while the store is
//! unreachable, the last known number is used.

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
use crate::lease::UnitOrigin;
use crate::node_quotas::NodeQuotas;
use crate::plan::{ChargePlan, PlanReadings};
use crate::receipt::Receipt;
use crate::unsettled_usage::{UnsettledUsage, used};

/// A limiter without a local store. Rules with `on_fail: local` then allow requests while the store
/// is unreachable. That is right for an in-process store, which is always reachable.
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

/// The local store, this node's shares, and the usage it admitted that the store has not counted
/// yet.
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

    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn set_bug(&self, bug: crate::lease::BugSwitch) {
        let quotas = self.quotas.load();
        let (rules, nodes) = (Arc::clone(quotas.rules()), quotas.nodes());
        self.quotas.store(Arc::new(NodeQuotas::with_bug(rules, nodes, bug)));
    }

    /// Divides the limits of a new rule set among `nodes` nodes.
    pub(crate) async fn install(&self, rules: &Arc<RuleSet>, nodes: u32) {
        let now = self.now().await;
        self.quotas.rcu(|shares| shares.updated(Arc::clone(rules), nodes, now));
    }

    /// Divides the limits among `nodes` nodes.
    pub(crate) async fn divide_among(&self, nodes: u32) {
        if self.quotas.load().nodes() != nodes {
            let now = self.now().await;
            self.quotas.rcu(|shares| shares.updated(Arc::clone(shares.rules()), nodes, now));
        }
    }

    /// Whether this is the only node, so that its shares are the whole limits.
    pub(crate) fn is_single_node(&self) -> bool {
        self.quotas.load().nodes() <= 1
    }

    /// Mirrors a plan for which the store answered all charges.
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

    /// Applies the store's changes to the local buckets: charges (even beyond the share), refunds
    /// and resets. Returns the local time.
    ///
    /// `by_store` holds the indices of the charges that the store answered.
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
            Op::Peek | Op::Renew { .. } | Op::Grant(_) => return Timestamp::EPOCH,
        };
        which.retain(|i| by_store.contains(i));
        let shares = self.quotas_for(rules).await;
        let mut batch = LocalBatch::new(plan, &shares, &which);
        if batch.charges.is_empty() || batch.apply(op, &self.store).await.is_err() {
            return Timestamp::EPOCH;
        }
        for (charge, reading) in batch.charges.iter().zip(&batch.readings) {
            match op {
                Op::Force => {
                    self.unsettled.cap_to_usage(charge.key.fingerprint, charge.cost, reading);
                }
                Op::Reset => self.unsettled.clear(charge.key.fingerprint),
                _ => {}
            }
        }
        batch.readings[0].now
    }

    /// Decides the charges `which` on the shares, all or none of them. `refused` says that another
    /// charge of the request is already refused. Admitted charges are recorded as unsettled usage.
    ///
    /// On entry, `numbers` holds the readings of all other charges.
    ///
    /// # Errors
    /// If the local store does not answer.
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
        for (i, reading) in batch.indices.iter().zip(&batch.readings) {
            numbers[*i] = to_local_reading(&plan.charges[*i], *reading);
        }
        for i in plan.made_charges(op, numbers).filter(|i| batch.indices.contains(i)) {
            let Charge { key, policy, cost, .. } = plan.charges[i];
            // Slots move to the store when they are renewed. Writing them as usage would leave
            // slots that no request releases.
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

    /// Refunds the charges of a receipt in the local buckets, both those that a share admitted and
    /// those mirrored from the store.
    pub(crate) async fn refund_receipt(&self, receipt: &Receipt) {
        let shares = self.quotas_for(&receipt.rules).await;
        for charged in &receipt.items {
            let Some(share) = shares.policy_for(charged.rule) else { continue };
            let charge = receipt.charge_with(charged, share, charged.cost);
            match charged.counter {
                // Units of another region are not mirrored.
                CounterLocation::Lease(UnitOrigin { lender: Some(_), .. }) => {}
                CounterLocation::Store
                | CounterLocation::Lease(_)
                | CounterLocation::Async { .. } => {
                    _ = self.refund_charge(&charge, charged.local_charged_at).await;
                }
                CounterLocation::Local => {
                    let back = self.refund_charge(&charge, charged.charged_at).await;
                    self.unsettled.subtract_refund(charged.fingerprint, back);
                }
            }
        }
    }

    /// Renews slots in the local store, both those that a share granted and those mirrored from the
    /// store.
    pub(crate) async fn renew(&self, receipt: &mut Receipt) {
        let shares = self.quotas_for(&receipt.rules).await;
        for i in 0..receipt.items.len() {
            let mut charged = receipt.items[i];
            let Some(share) = shares.policy_for(charged.rule) else { continue };
            let charge = [receipt.charge_with(&charged, share, charged.cost)];
            let (renew, mut readings) =
                (Op::Renew { charged_at: *charged.local_charged_at_mut() }, [Reading::default()]);
            if self.store.apply(renew, &charge, &mut readings).await.is_ok() {
                *receipt.items[i].local_charged_at_mut() = readings[0].now;
            }
        }
    }

    /// Refunds one charge and returns the amount refunded.
    async fn refund_charge(&self, charge: &Charge<'_>, charged_at: Timestamp) -> u64 {
        let (charge, mut before, mut after) =
            ([*charge], [Reading::default()], [Reading::default()]);
        let refund = Op::Refund { charged_at };
        let peeked = self.store.apply(Op::Peek, &charge, &mut before).await;
        let refunded = self.store.apply(refund, &charge, &mut after).await;
        match peeked.and(refunded) {
            Ok(_) => used(&before[0]).saturating_sub(used(&after[0])),
            Err(_) => 0,
        }
    }

    /// The shares for a rule set: the active ones, unless the request began under other rules.
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

/// Some charges of a plan, with the node's share as policy.
struct LocalBatch<'a> {
    /// Their indices in the plan.
    indices: SmallVec<[usize; 4]>,
    charges: SmallVec<[Charge<'a>; 4]>,
    readings: PlanReadings,
}

impl<'a> LocalBatch<'a> {
    /// Selects those of the charges `which` whose rules have a share.
    fn new<'p: 'a>(plan: &ChargePlan<'p>, shares: &'a NodeQuotas, which: &[usize]) -> Self {
        let shared = which.iter().filter_map(|i| {
            let (charge, policy): (Charge<'a>, _) =
                (plan.charges[*i], shares.policy_for(plan.rule_index(*i))?);
            Some((*i, Charge { policy, ..charge }))
        });
        let (indices, charges) = shared.unzip();
        Self { indices, charges, readings: PlanReadings::new() }
    }

    /// Makes the store refuse the whole batch, by adding a charge that never fits. Ban strikes and
    /// `charge: always` rules are then handled as in any other refused batch.
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

/// Adjusts a share's reading. A charge that exceeds the share but fits the whole limit gets a
/// finite retry time instead of `Never`.
fn to_local_reading(charge: &Charge<'_>, reading: Reading) -> Reading {
    let fits_the_limit = charge.cost <= charge.policy.limit();
    match reading.retry {
        Retry::Never if fits_the_limit => {
            Reading { retry: Retry::After(FALLBACK_RETRY_AFTER), ..reading }
        }
        _ => reading,
    }
}
