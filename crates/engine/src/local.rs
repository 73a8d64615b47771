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

use crate::debt::{Debts, used};
use crate::decision::Counter;
use crate::failure::COME_BACK;
use crate::plan::{Numbers, Plan};
use crate::receipt::Receipt;
use crate::share::Shares;

/// No local store. Rules with `on_fail: local` then let requests pass while the store is gone, which
/// is right where the store is in the process itself and never is.
#[derive(Debug)]
pub enum NoLocal {}

impl Store for NoLocal {
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
pub(crate) struct Local<L> {
    pub(crate) store: L,
    shares: ArcSwap<Shares>,
    pub(crate) debts: Debts,
}

impl<L: Store> Local<L> {
    pub(crate) fn new(store: L, rules: Arc<RuleSet>, nodes: u32) -> Self {
        let shares = ArcSwap::from_pointee(Shares::new(rules, nodes));
        Self { store, shares, debts: Debts::default() }
    }

    /// Shares the limits of another rule set among a number of nodes.
    pub(crate) async fn install(&self, rules: &Arc<RuleSet>, nodes: u32) {
        let now = self.now().await;
        self.shares.rcu(|shares| shares.followed_by(Arc::clone(rules), nodes, now));
    }

    /// Shares the limits among a number of nodes.
    pub(crate) async fn share_among(&self, nodes: u32) {
        if self.shares.load().nodes() != nodes {
            let now = self.now().await;
            self.shares.rcu(|shares| shares.followed_by(Arc::clone(shares.rules()), nodes, now));
        }
    }

    /// Whether there is no other node: the shares are the whole limits.
    pub(crate) fn is_alone(&self) -> bool {
        self.shares.load().nodes() <= 1
    }

    /// Follows a store that answered for all of a plan.
    pub(crate) async fn keep_warm(
        &self,
        op: Op,
        plan: &mut Plan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &[Reading],
    ) {
        let all: SmallVec<[usize; 4]> = (0..plan.charges.len()).collect();
        plan.local_at = self.follow(op, plan, rules, numbers, &all).await;
    }

    /// Does to the local buckets what the store did to its own: charges what was charged, whether it
    /// fits the share or not, refunds and resets. Returns the local clock.
    ///
    /// `by_store` are the charges that the store answered.
    pub(crate) async fn follow(
        &self,
        op: Op,
        plan: &Plan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &[Reading],
        by_store: &[usize],
    ) -> Timestamp {
        let (op, mut which): (Op, SmallVec<[usize; 4]>) = match op {
            Op::Charge | Op::Force => (Op::Force, plan.made(op, numbers).collect()),
            Op::Refund { .. } | Op::Reset => (op, by_store.iter().copied().collect()),
            Op::Peek | Op::Renew { .. } => return Timestamp::EPOCH,
        };
        which.retain(|i| by_store.contains(i));
        let shares = self.shares_of(rules).await;
        let mut batch = Batch::new(plan, &shares, &which);
        if batch.charges.is_empty() || batch.apply(op, &self.store).await.is_err() {
            return Timestamp::EPOCH;
        }
        for (charge, told) in batch.charges.iter().zip(&batch.numbers) {
            match op {
                Op::Force => self.debts.known(charge.key.fingerprint, charge.cost, told),
                Op::Reset => self.debts.clear(charge.key.fingerprint),
                _ => {}
            }
        }
        batch.numbers[0].now
    }

    /// Answers the charges `which`, all or none of them; `refused` says that another part of the
    /// request is refused already. What is admitted becomes a debt to the store.
    ///
    /// `numbers` tells what is said to all other charges.
    ///
    /// # Errors
    /// When the local store does not answer.
    pub(crate) async fn answer(
        &self,
        op: Op,
        plan: &Plan<'_>,
        rules: &Arc<RuleSet>,
        which: &[usize],
        refused: bool,
        numbers: &mut [Reading],
    ) -> Result<(), StoreError> {
        let shares = self.shares_of(rules).await;
        let mut batch = Batch::new(plan, &shares, which);
        let mut before = Numbers::new();
        if matches!(op, Op::Refund { .. }) {
            batch.apply(Op::Peek, &self.store).await?;
            before = batch.numbers.clone();
        }
        if refused && op == Op::Charge {
            batch.refuse();
        }
        batch.apply(op, &self.store).await?;
        for (i, told) in batch.at.iter().zip(&batch.numbers) {
            numbers[*i] = on_share(&plan.charges[*i], *told);
        }
        for i in plan.made(op, numbers).filter(|i| batch.at.contains(i)) {
            let Charge { key, policy, cost, .. } = plan.charges[i];
            // Slots move to the store when they are renewed: written now, nobody would release them.
            if policy.is_concurrency() {
                continue;
            }
            self.debts.owe(key.fingerprint, plan.rule(i), &shares, cost, numbers[i].now);
        }
        for (i, before) in batch.at.iter().zip(&before) {
            let back = used(before).saturating_sub(used(&numbers[*i]));
            self.debts.given_back(plan.charges[*i].key.fingerprint, back);
        }
        if op == Op::Reset {
            batch.at.iter().for_each(|i| self.debts.clear(plan.charges[*i].key.fingerprint));
        }
        Ok(())
    }

    /// Takes back what the local buckets were charged, because a share admitted it or because the store
    /// had.
    pub(crate) async fn take_back(&self, receipt: &Receipt) {
        let shares = self.shares_of(&receipt.rules).await;
        for charged in &receipt.charged {
            let Some(share) = shares.of(charged.rule) else { continue };
            let charge = receipt.charge(charged, share, charged.cost);
            match charged.counter {
                Counter::Store => _ = self.refund(&charge, charged.local_at).await,
                Counter::Local => {
                    let back = self.refund(&charge, charged.at).await;
                    self.debts.given_back(charged.fingerprint, back);
                }
            }
        }
    }

    /// Holds slots on in the local store: those that shares gave, and those that the store holds.
    pub(crate) async fn renew(&self, receipt: &mut Receipt) {
        let shares = self.shares_of(&receipt.rules).await;
        for i in 0..receipt.charged.len() {
            let mut charged = receipt.charged[i];
            let Some(share) = shares.of(charged.rule) else { continue };
            let charge = [receipt.charge(&charged, share, charged.cost)];
            let (renew, mut told) =
                (Op::Renew { charged_at: *charged.local_instant() }, [Reading::default()]);
            if self.store.apply(renew, &charge, &mut told).await.is_ok() {
                *receipt.charged[i].local_instant() = told[0].now;
            }
        }
    }

    /// Refunds one charge and says how much of it came back.
    async fn refund(&self, charge: &Charge<'_>, charged_at: Timestamp) -> u64 {
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
    async fn shares_of(&self, rules: &Arc<RuleSet>) -> Arc<Shares> {
        let shares = self.shares.load_full();
        if Arc::ptr_eq(shares.rules(), rules) {
            return shares;
        }
        let now = self.now().await;
        Arc::new(shares.followed_by(Arc::clone(rules), shares.nodes(), now))
    }

    async fn now(&self) -> Timestamp {
        self.store.now().await.unwrap_or_default()
    }
}

/// Some charges of a plan, on their rules' shares.
struct Batch<'a> {
    /// Their places in the plan.
    at: SmallVec<[usize; 4]>,
    charges: SmallVec<[Charge<'a>; 4]>,
    numbers: Numbers,
}

impl<'a> Batch<'a> {
    /// Those of the charges `which` whose rules have a share.
    fn new<'p: 'a>(plan: &Plan<'p>, shares: &'a Shares, which: &[usize]) -> Self {
        let shared = which.iter().filter_map(|i| {
            let (charge, policy): (Charge<'a>, _) = (plan.charges[*i], shares.of(plan.rule(*i))?);
            Some((*i, Charge { policy, ..charge }))
        });
        let (at, charges) = shared.unzip();
        Self { at, charges, numbers: Numbers::new() }
    }

    /// Has the batch refused as a whole, by a charge that never fits: strikes towards a ban and what
    /// is charged always are then as in any other refused batch.
    fn refuse(&mut self) {
        if let Some(Charge { policy, .. }) = self.charges.first().copied() {
            let key = Key::alone("", Fingerprint::default());
            self.charges.push(Charge::plain(key, policy, u64::MAX));
        }
    }

    async fn apply<L: Store>(&mut self, op: Op, store: &L) -> Result<AnsweredBy, StoreError> {
        self.numbers = SmallVec::from_elem(Reading::default(), self.charges.len());
        store.apply(op, &self.charges, &mut self.numbers).await
    }
}

/// What a share says to a charge: one that only the whole limit holds need not wait for ever.
fn on_share(charge: &Charge<'_>, told: Reading) -> Reading {
    let fits_the_limit = charge.cost <= charge.policy.limit();
    match told.retry {
        Retry::Never if fits_the_limit => Reading { retry: Retry::After(COME_BACK), ..told },
        _ => told,
    }
}
