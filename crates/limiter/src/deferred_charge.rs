//! Costs that are known only when the response is: what was charged at the decision is corrected.
//!
//! The correction has a state of its own, the bill, which is taken out of the decision and does not
//! need the request: its counters are in it (Envoy's CVE-2026-26330 came of going on with the request's
//! state in the response's phase).

use std::sync::Arc;

use tidegate_core::store::{Op, Store};
use tidegate_rules::Rule;

use crate::limiter::Limiter;
use crate::plan::ChargePlan;
use crate::receipt::{Receipt, ReceiptItem};

/// What was charged to rules whose cost the response tells. It is handed in once, by
/// [`Limiter::settle_deferred`]; where it is dropped instead, what was charged stays.
#[derive(Debug)]
#[must_use = "without it what was charged stays an estimate"]
pub struct DeferredCharge(pub(crate) Receipt);

impl DeferredCharge {
    /// The rules that wait to hear what the request has cost.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.0.items.iter().map(|charged| self.0.rule(charged))
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Corrects what was charged to what the request has cost in the end, rule by rule; where that is
    /// not known, what was charged stays. What is missing is charged by force, into debt of at most one
    /// limit; what was too much is given back as far as time has not.
    ///
    /// While the store is gone, what is missing is counted on the local share of a rule with
    /// `on_fail: local` and written back later; of other rules it is dropped, and what was too much
    /// stays charged.
    pub async fn settle_deferred(
        &self,
        bill: DeferredCharge,
        actual: impl Fn(&Rule) -> Option<u64>,
    ) {
        let DeferredCharge(receipt) = bill;
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

/// The charges of a receipt for which there is a difference, with that as their cost.
fn cost_difference(receipt: &Receipt, of: impl Fn(&ReceiptItem) -> Option<u64>) -> Receipt {
    let differs = |charged: &ReceiptItem| {
        let cost = of(charged).filter(|cost| *cost > 0)?;
        Some(ReceiptItem { cost, ..*charged })
    };
    let charged = receipt.items.iter().filter_map(differs).collect();
    Receipt { rules: Arc::clone(&receipt.rules), items: charged }
}
