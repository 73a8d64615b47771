//! Applies each rule's `on_fail` when the store answers only some charges of a request, or none.
//!
//! The request is still decided as a whole. If a rule that the store did not answer for refuses,
//! the store's charges for the other rules are refunded. If a rule that the store did answer for
//! refuses, no share is charged. In both cases the charges of `charge: always` rules stay.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::store::{Charge, Op, Role, Store, StoreError};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{OnFail, RuleSet};

use crate::decision::CounterLocation;
use crate::limiter::Limiter;
use crate::plan::{ChargePlan, PlanReadings};
use crate::refund;

/// Retry time for a request that is refused because the store is unreachable.
pub(crate) const FALLBACK_RETRY_AFTER: Micros = Micros::from_secs(1);

/// Where each charge of a plan is counted; `None` if the rule's `on_fail` is `allow` or `deny`.
type ChargeLocations = SmallVec<[Option<CounterLocation>; 4]>;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Completes a plan after the store failed for some or all of its charges. On entry, `numbers`
    /// holds the readings that the store returned.
    pub(crate) async fn fall_back(
        &self,
        op: Op,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &mut [Reading],
        error: &StoreError,
    ) {
        let on_fail = |plan: &ChargePlan<'_>, i: usize| plan.on_fail(i, rules);
        let mut counters: ChargeLocations = (0..plan.charges.len())
            .map(|i| match on_fail(plan, i) {
                _ if error.answered.contains(&i) => Some(CounterLocation::Store),
                OnFail::Local if self.local.is_some() => Some(CounterLocation::Local),
                _ => None,
            })
            .collect();
        let now = self.local_now().await;
        for i in indices_of(&counters, None) {
            numbers[i] = on_fail_reading(on_fail(plan, i), &plan.charges[i], now);
        }
        self.sync_node_count().await;
        let shared = indices_of(&counters, Some(CounterLocation::Local));
        if let Some(local) = self.local.as_ref().filter(|_| !shared.is_empty()) {
            let refused =
                any_refuses(&counters, numbers, |counter| counter != Some(CounterLocation::Local));
            let answer = local.decide_locally(op, plan, rules, &shared, refused, numbers).await;
            if answer.is_err() {
                for i in shared {
                    let allowed = on_fail_reading(OnFail::Allow, &plan.charges[i], now);
                    (counters[i], numbers[i]) = (None, allowed);
                }
            }
        }
        if op == Op::Charge {
            self.refund_store_charges(plan, &counters, numbers).await;
        }
        if let Some(local) = &self.local {
            let by_store = indices_of(&counters, Some(CounterLocation::Store));
            plan.local_charged_at = local.mirror_charges(op, plan, rules, numbers, &by_store).await;
        }
        if counters.iter().any(|counter| *counter != Some(CounterLocation::Store)) {
            plan.answered_by = AnsweredBy::Fallback;
        }
        plan.set_readings(op, numbers, |i| counters[i]);
    }

    /// Refunds the store's charges if a rule that the store did not answer for refuses the request.
    async fn refund_store_charges(
        &self,
        plan: &ChargePlan<'_>,
        counters: &ChargeLocations,
        numbers: &mut [Reading],
    ) {
        let store = Some(CounterLocation::Store);
        let refused_by_store = any_refuses(counters, numbers, |counter| counter == store);
        if refused_by_store || !any_refuses(counters, numbers, |counter| counter != store) {
            return;
        }
        let charged = |i: &usize| {
            plan.charges[*i].role != Role::Always && numbers[*i].verdict == Verdict::Allow
        };
        let refunded: SmallVec<[usize; 4]> =
            indices_of(counters, store).into_iter().filter(charged).collect();
        let charges: SmallVec<[Charge<'_>; 4]> =
            refunded.iter().map(|i| plan.charges[*i]).collect();
        let mut readings: PlanReadings = refunded.iter().map(|i| numbers[*i]).collect();
        refund::refund_charges(&self.store, &charges, &mut readings).await;
        refunded.into_iter().zip(readings).for_each(|(i, reading)| numbers[i] = reading);
    }
}

/// Indices of the charges that are counted at `counter`.
fn indices_of(
    counters: &ChargeLocations,
    counter: Option<CounterLocation>,
) -> SmallVec<[usize; 4]> {
    (0..counters.len()).filter(|i| counters[*i] == counter).collect()
}

/// Whether a charge whose counter matches `kind` refuses the request.
fn any_refuses(
    counters: &ChargeLocations,
    numbers: &[Reading],
    kind: impl Fn(Option<CounterLocation>) -> bool,
) -> bool {
    counters
        .iter()
        .zip(numbers)
        .any(|(counter, reading)| kind(*counter) && reading.verdict.refuses())
}

/// The reading of a charge that was not counted, as given by the rule's `on_fail`.
fn on_fail_reading(on_fail: OnFail, charge: &Charge<'_>, now: Timestamp) -> Reading {
    let limit = charge.policy.limit();
    let reading = Reading { limit, remaining: limit, now, ..Reading::default() };
    match (on_fail, charge.role) {
        (OnFail::Deny, Role::Enforce | Role::Always) => Reading {
            verdict: Verdict::Deny,
            remaining: 0,
            retry: Retry::After(FALLBACK_RETRY_AFTER),
            ..reading
        },
        _ => reading,
    }
}
