//! Slots: what rules with a concurrency limit hold for a request until its response ends.
//!
//! Whoever answers the request takes them out of the decision, renews them while it answers and
//! releases them after. There is no clock here: when to renew, the holder knows by the lease.

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_core::time::{Micros, Timestamp};

use crate::decision::Counter;
use crate::limiter::Limiter;
use crate::plan::Numbers;
use crate::receipt::{Charged, Receipt};

/// The slots of one request. They are handed in once, by [`Limiter::release`]; what is dropped instead
/// lapses with its lease.
#[derive(Debug)]
#[must_use = "slots that are not released are held until their lease ends"]
pub struct Slots(pub(crate) Receipt);

impl Slots {
    /// How long they are held unless they are renewed: the shortest of their leases. Renewing when a
    /// third of it has gone by leaves room for a renewal that fails.
    #[must_use]
    pub fn lease(&self) -> Micros {
        let lease = |charged| self.0.rule(charged).limit().policy()?.lease();
        self.0.charged.iter().filter_map(lease).min().unwrap_or_default()
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Frees slots, where they were taken; nothing else that the request was charged comes back. While
    /// the store is gone they lapse with their lease.
    pub async fn release(&self, slots: Slots) {
        self.hand_in(&slots.0).await;
    }

    /// Holds slots for another lease, also those that have lapsed meanwhile: their request is still
    /// under way. What a local share gave moves to the store as soon as that answers.
    ///
    /// A renewal that is not answered, or not waited for, may have been done all the same: the slot then
    /// counts twice until the lease of one of them ends, which is too strict and never too lax.
    pub async fn renew(&self, slots: &mut Slots) {
        renew_in_store(&self.store, &mut slots.0).await;
        if let Some(local) = &self.local {
            local.renew(&mut slots.0).await;
        }
    }
}

/// Slots that the store does not know of are as if they had been taken before all time: it does not find
/// them and takes them.
const UNKNOWN: Timestamp = Timestamp::EPOCH;

async fn renew_in_store<S: Store>(store: &S, receipt: &mut Receipt) {
    let since = |charged: &Charged| match charged.counter {
        Counter::Store => charged.at,
        Counter::Local => UNKNOWN,
    };
    let mut left: SmallVec<[usize; 2]> = (0..receipt.charged.len()).collect();
    while let Some(first) = left.first() {
        // Usually all were taken at one instant; the parts of a cluster have clocks of their own.
        let charged_at = since(&receipt.charged[*first]);
        let (batch, later): (SmallVec<[usize; 2]>, _) =
            left.into_iter().partition(|i| since(&receipt.charged[*i]) == charged_at);
        left = later;
        let mut told: Numbers = SmallVec::from_elem(Reading::default(), batch.len());
        let answered: SmallVec<[usize; 2]> = {
            // All are of rules with a policy, so that these are as many.
            let charges: SmallVec<[Charge<'_>; 2]> =
                batch.iter().filter_map(|i| receipt.made(&receipt.charged[*i])).collect();
            match store.apply(Op::Renew { charged_at }, &charges, &mut told).await {
                Ok(_) => (0..charges.len()).collect(),
                Err(error) => error.answered.into(),
            }
        };
        for i in answered {
            receipt.charged[batch[i]].held_by_store(told[i].now);
        }
    }
}

impl Charged {
    /// The store holds it, since an instant of its clock.
    fn held_by_store(&mut self, now: Timestamp) {
        if self.counter == Counter::Local {
            (self.counter, self.local_at) = (Counter::Store, self.at);
        }
        self.at = now;
    }

    /// The instant by which the local store knows it.
    pub(crate) fn local_instant(&mut self) -> &mut Timestamp {
        match self.counter {
            Counter::Store => &mut self.local_at,
            Counter::Local => &mut self.at,
        }
    }
}
