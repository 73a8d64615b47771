//! Slots: what rules with a concurrency limit hold for a request until its response ends.
//!
//! Whoever answers the request takes them out of the decision, renews them while it answers and
//! releases them after. There is no clock here: when to renew, the holder knows by the lease.

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_core::time::{Micros, Timestamp};

use crate::decision::CounterLocation;
use crate::limiter::Limiter;
use crate::plan::PlanReadings;
use crate::receipt::{Receipt, ReceiptItem};

/// The slots of one request. They are handed in once, by [`Limiter::release_slots`]; what is dropped instead
/// lapses with its lease.
#[derive(Debug)]
#[must_use = "slots that are not released are held until their lease ends"]
pub struct HeldSlots(pub(crate) Receipt);

impl HeldSlots {
    /// How long they are held unless they are renewed: the shortest of their leases. Renewing when a
    /// third of it has gone by leaves room for a renewal that fails.
    #[must_use]
    pub fn lease(&self) -> Micros {
        let lease = |charged| self.0.rule(charged).limit().policy()?.slot_hold();
        self.0.items.iter().filter_map(lease).min().unwrap_or_default()
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Frees slots, where they were taken; nothing else that the request was charged comes back. While
    /// the store is gone they lapse with their lease.
    pub async fn release_slots(&self, slots: HeldSlots) {
        self.refund_receipt(&slots.0).await;
    }

    /// Holds slots for another lease, also those that have lapsed meanwhile: their request is still
    /// under way. What a local share gave moves to the store as soon as that answers.
    ///
    /// A renewal that is not answered, or not waited for, may have been done all the same: the slot then
    /// counts twice until the lease of one of them ends, which is too strict and never too lax.
    pub async fn renew_slots(&self, slots: &mut HeldSlots) {
        renew_slots_in_store(&self.store, &mut slots.0).await;
        if let Some(local) = &self.local {
            local.renew(&mut slots.0).await;
        }
    }
}

/// Slots that the store does not know of are as if they had been taken before all time: it does not find
/// them and takes them.
const NOT_IN_STORE: Timestamp = Timestamp::EPOCH;

async fn renew_slots_in_store<S: Store>(store: &S, receipt: &mut Receipt) {
    let since = |charged: &ReceiptItem| match charged.counter {
        CounterLocation::Store => charged.charged_at,
        CounterLocation::Local => NOT_IN_STORE,
    };
    let mut left: SmallVec<[usize; 2]> = (0..receipt.items.len()).collect();
    while let Some(first) = left.first() {
        // Usually all were taken at one instant; the parts of a cluster have clocks of their own.
        let charged_at = since(&receipt.items[*first]);
        let (batch, later): (SmallVec<[usize; 2]>, _) =
            left.into_iter().partition(|i| since(&receipt.items[*i]) == charged_at);
        left = later;
        let mut told: PlanReadings = SmallVec::from_elem(Reading::default(), batch.len());
        let answered: SmallVec<[usize; 2]> = {
            // All are of rules with a policy, so that these are as many.
            let charges: SmallVec<[Charge<'_>; 2]> =
                batch.iter().filter_map(|i| receipt.original_charge(&receipt.items[*i])).collect();
            match store.apply(Op::Renew { charged_at }, &charges, &mut told).await {
                Ok(_) => (0..charges.len()).collect(),
                Err(error) => error.answered.into(),
            }
        };
        for i in answered {
            receipt.items[batch[i]].mark_held_by_store(told[i].now);
        }
    }
}

impl ReceiptItem {
    /// The store holds it, since an instant of its clock.
    fn mark_held_by_store(&mut self, now: Timestamp) {
        if self.counter == CounterLocation::Local {
            (self.counter, self.local_charged_at) = (CounterLocation::Store, self.charged_at);
        }
        self.charged_at = now;
    }

    /// The instant by which the local store knows it.
    pub(crate) fn local_charged_at_mut(&mut self) -> &mut Timestamp {
        match self.counter {
            CounterLocation::Store => &mut self.local_charged_at,
            CounterLocation::Local => &mut self.charged_at,
        }
    }
}
