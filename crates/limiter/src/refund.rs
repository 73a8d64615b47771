//! Refunds: reverses a charge as of the time at which it was made.

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store};

use crate::decision::CounterLocation;
use crate::limiter::Limiter;
use crate::plan::PlanReadings;
use crate::receipt::{Receipt, ReceiptItem};

/// Refunds charges in a store. On entry, `readings` holds the time of each charge; on return, the
/// counter's state after the refund.
///
/// Usually all charges of a batch have the same time and are refunded in one call, but the nodes of
/// a cluster have separate clocks. A charge for which the store does not answer stays.
pub(crate) async fn refund_charges<S: Store>(
    store: &S,
    charges: &[Charge<'_>],
    readings: &mut [Reading],
) {
    let mut left: SmallVec<[usize; 4]> = (0..charges.len()).collect();
    while let Some(first) = left.first() {
        let charged_at = readings[*first].now;
        let (now, later): (SmallVec<[usize; 4]>, _) =
            left.into_iter().partition(|i| readings[*i].now == charged_at);
        left = later;
        let batch: SmallVec<[Charge<'_>; 4]> = now.iter().map(|i| charges[*i]).collect();
        let mut after: PlanReadings = SmallVec::from_elem(Reading::default(), batch.len());
        if store.apply(Op::Refund { charged_at }, &batch, &mut after).await.is_ok() {
            for (i, after) in now.into_iter().zip(after) {
                readings[i].set_gauge(after.gauge());
            }
        }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Refunds the charges of a receipt in the stores that counted them.
    pub(crate) async fn refund_receipt(&self, receipt: &Receipt) {
        let at_store = |charged: &ReceiptItem| match charged.counter {
            CounterLocation::Store => true,
            CounterLocation::Local => false,
            // Units go back into their lease while it lasts, and then to the store that granted
            // them.
            CounterLocation::Lease(origin) => self
                .node_counters
                .as_ref()
                .is_none_or(|it| it.leases.refund_units(receipt, charged, origin)),
            // Units that were not flushed yet need not be.
            CounterLocation::Async { flush } => !self
                .node_counters
                .as_ref()
                .is_some_and(|it| it.flushes.take_back(charged.fingerprint, charged.cost, flush)),
        };
        let (charges, mut readings): (SmallVec<[Charge<'_>; 4]>, PlanReadings) =
            receipt.charges_where(at_store).unzip();
        refund_charges(&self.store, &charges, &mut readings).await;
        if let Some(local) = &self.local {
            local.refund_receipt(receipt).await;
        }
    }
}
