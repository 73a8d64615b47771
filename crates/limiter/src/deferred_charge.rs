//! Deferred costs: corrects the charge of a request whose cost becomes known later, usually with
//! its response.
//!
//! The correction does not need the request. Its state, [`DeferredCharge`], is taken out of the
//! decision and contains the counters. (Envoy's CVE-2026-26330 was caused by using the request's
//! state in the response phase.)

use std::sync::Arc;

use tidegate_core::store::{Op, Store};
use tidegate_rules::Rule;

use crate::limiter::Limiter;
use crate::plan::ChargePlan;
use crate::receipt::{Receipt, ReceiptItem};

/// Charges that are corrected once the cost of the request is known, by
/// [`Limiter::settle_deferred`]. If the value is dropped instead, the charges stay as they are.
#[derive(Debug)]
#[must_use = "if it is dropped, the estimated cost stays charged"]
pub struct DeferredCharge(pub(crate) Receipt);

impl DeferredCharge {
    /// The rules that were charged.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.0.items.iter().map(|charged| self.0.rule(charged))
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Corrects the charges to the actual cost, rule by rule; if `actual` returns `None`, the
    /// rule's charge stays. A shortfall is charged by force, into debt of at most one limit. A
    /// surplus is refunded, except for the part that has already drained.
    ///
    /// If the store is unreachable, a shortfall on a rule with `on_fail: local` is charged to the
    /// local share and settled later. For other rules it is dropped. A surplus then stays charged.
    pub async fn settle_deferred(
        &self,
        charge: DeferredCharge,
        actual: impl Fn(&Rule) -> Option<u64>,
    ) {
        let DeferredCharge(receipt) = charge;
        let (missing, surplus) = {
            let actual = |charged: &ReceiptItem| actual(receipt.rule(charged));
            let missing =
                cost_difference(&receipt, |charged| actual(charged)?.checked_sub(charged.cost));
            let surplus =
                cost_difference(&receipt, |charged| charged.cost.checked_sub(actual(charged)?));
            (missing, surplus)
        };
        let rules = self.rules();
        let missing = missing.for_rules(&rules);
        self.apply_plan(
            Op::Force,
            &mut ChargePlan::from_receipt_items(&rules, &missing.items),
            &rules,
        )
        .await;
        if !surplus.items.is_empty() {
            self.refund_receipt(&surplus.for_rules(&rules)).await;
        }
    }
}

/// The charges of a receipt that have a difference, with the difference as their cost.
fn cost_difference(receipt: &Receipt, difference: impl Fn(&ReceiptItem) -> Option<u64>) -> Receipt {
    let with_difference = |charged: &ReceiptItem| {
        let cost = difference(charged).filter(|cost| *cost > 0)?;
        Some(ReceiptItem { cost, ..*charged })
    };
    let charged = receipt.items.iter().filter_map(with_difference).collect();
    Receipt { rules: Arc::clone(&receipt.rules), items: charged }
}
