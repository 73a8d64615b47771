//! Giving back: what was charged, at the instant it was charged.

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store};

use crate::decision::CounterLocation;
use crate::limiter::Limiter;
use crate::plan::PlanReadings;
use crate::receipt::Receipt;

/// Gives charges back to a store. `told` says when each was charged and is told how it stands after.
///
/// All of a batch are usually charged at one instant, and are then given back in one call; the parts
/// of a cluster have clocks of their own. What a store does not answer stays charged.
pub(crate) async fn refund_charges<S: Store>(
    store: &S,
    charges: &[Charge<'_>],
    told: &mut [Reading],
) {
    let mut left: SmallVec<[usize; 4]> = (0..charges.len()).collect();
    while let Some(first) = left.first() {
        let charged_at = told[*first].now;
        let (now, later): (SmallVec<[usize; 4]>, _) =
            left.into_iter().partition(|i| told[*i].now == charged_at);
        left = later;
        let batch: SmallVec<[Charge<'_>; 4]> = now.iter().map(|i| charges[*i]).collect();
        let mut after: PlanReadings = SmallVec::from_elem(Reading::default(), batch.len());
        if store.apply(Op::Refund { charged_at }, &batch, &mut after).await.is_ok() {
            for (i, after) in now.into_iter().zip(after) {
                told[i].set_gauge(after.gauge());
            }
        }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Gives back what is in a receipt, where it was charged.
    pub(crate) async fn refund_receipt(&self, receipt: &Receipt) {
        let (charges, mut told): (SmallVec<[Charge<'_>; 4]>, PlanReadings) =
            receipt.charges_on(CounterLocation::Store).unzip();
        refund_charges(&self.store, &charges, &mut told).await;
        if let Some(local) = &self.local {
            local.refund_receipt(receipt).await;
        }
    }
}
