//! Concurrency slots, which rules with a concurrency limit hold for a request until its response
//! ends.
//!
//! The code that serves the request takes the slots out of the decision, renews them while it
//! responds and releases them afterwards. This module reads no clock: the holder schedules the
//! renewals by [`HeldSlots::hold`].

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_core::time::{Micros, Timestamp};

use crate::decision::CounterLocation;
use crate::limiter::Limiter;
use crate::plan::PlanReadings;
use crate::receipt::{Receipt, ReceiptItem};

/// The slots of one request, released once, by [`Limiter::release_slots`]. Slots that are dropped
/// instead expire after their hold time.
#[derive(Debug)]
#[must_use = "slots that are not released are held until their hold time expires"]
pub struct HeldSlots(pub(crate) Receipt);

impl HeldSlots {
    /// How long the slots are held unless renewed: the shortest of their hold times. Renewing after
    /// a third of it leaves time to retry a failed renewal.
    #[must_use]
    pub fn hold(&self) -> Micros {
        let hold = |charged| self.0.rule(charged).limit().policy()?.slot_hold();
        self.0.items.iter().filter_map(hold).min().unwrap_or_default()
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Releases slots, in the store that granted them; all other charges of the request stay. If
    /// the store is unreachable, the slots expire after their hold time.
    pub async fn release_slots(&self, slots: HeldSlots) {
        self.refund_receipt(&slots.0).await;
    }

    /// Extends slots by another hold time, including slots that have expired meanwhile: their
    /// request is still in progress. Slots granted by a local share move to the store as soon as
    /// it answers.
    ///
    /// A renewal may take effect even if its response is lost or the caller stops waiting for it.
    /// The slot is then counted twice until one of the two hold times expires, which is too strict
    /// but never too lax.
    pub async fn renew_slots(&self, slots: &mut HeldSlots) {
        renew_slots_in_store(&self.store, &mut slots.0).await;
        if let Some(local) = &self.local {
            local.renew(&mut slots.0).await;
        }
    }
}

/// Charge time sent for a slot that the store does not hold. The store finds no slot from that
/// time, so the renewal takes a new one.
const NOT_IN_STORE: Timestamp = Timestamp::EPOCH;

async fn renew_slots_in_store<S: Store>(store: &S, receipt: &mut Receipt) {
    let since = |charged: &ReceiptItem| match charged.counter {
        CounterLocation::Store | CounterLocation::Lease(_) | CounterLocation::Async { .. } => {
            charged.charged_at
        }
        CounterLocation::Local => NOT_IN_STORE,
    };
    let mut left: SmallVec<[usize; 2]> = (0..receipt.items.len()).collect();
    while let Some(first) = left.first() {
        // Usually all slots have the same time, but the nodes of a cluster have separate clocks.
        let charged_at = since(&receipt.items[*first]);
        let (batch, later): (SmallVec<[usize; 2]>, _) =
            left.into_iter().partition(|i| since(&receipt.items[*i]) == charged_at);
        left = later;
        let mut readings: PlanReadings = SmallVec::from_elem(Reading::default(), batch.len());
        let answered: SmallVec<[usize; 2]> = {
            // Every slot belongs to a rule with a policy, so `charges` is as long as `batch`.
            let charges: SmallVec<[Charge<'_>; 2]> =
                batch.iter().filter_map(|i| receipt.original_charge(&receipt.items[*i])).collect();
            match store.apply(Op::Renew { charged_at }, &charges, &mut readings).await {
                Ok(_) => (0..charges.len()).collect(),
                Err(error) => error.answered.into(),
            }
        };
        for i in answered {
            receipt.items[batch[i]].mark_held_by_store(readings[i].now);
        }
    }
}

impl ReceiptItem {
    /// Records that the store holds the slot since `now`, by the store's clock.
    fn mark_held_by_store(&mut self, now: Timestamp) {
        if self.counter == CounterLocation::Local {
            (self.counter, self.local_charged_at) = (CounterLocation::Store, self.charged_at);
        }
        self.charged_at = now;
    }

    /// The time under which the local store holds the slot.
    pub(crate) fn local_charged_at_mut(&mut self) -> &mut Timestamp {
        match self.counter {
            CounterLocation::Store | CounterLocation::Lease(_) | CounterLocation::Async { .. } => {
                &mut self.local_charged_at
            }
            CounterLocation::Local => &mut self.charged_at,
        }
    }
}
