//! When the store does not answer, or only in part: each rule's own word for it.
//!
//! A request is still decided as a whole. If a rule that the store did not answer for refuses, what
//! the store charged to the others is given back; if one that it did answer for refuses, no share is
//! charged. Only what is charged always stays.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::store::{Charge, Op, Role, Store, StoreError};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{OnFail, RuleSet};

use crate::decision::Counter;
use crate::limiter::Limiter;
use crate::plan::{Numbers, Plan};
use crate::refund;

/// How long a client that is refused for want of a store is asked to wait.
pub(crate) const COME_BACK: Micros = Micros::from_secs(1);

/// Who counts each charge of a plan; nobody where `on_fail` is `allow` or `deny`.
type Counters = SmallVec<[Option<Counter>; 4]>;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Answers a plan that the store answered in part or not at all. `numbers` tells what it did.
    pub(crate) async fn fall_back(
        &self,
        op: Op,
        plan: &mut Plan<'_>,
        rules: &Arc<RuleSet>,
        numbers: &mut [Reading],
        error: &StoreError,
    ) {
        let on_fail = |plan: &Plan<'_>, i: usize| plan.on_fail(i, rules);
        let mut counters: Counters = (0..plan.charges.len())
            .map(|i| match on_fail(plan, i) {
                _ if error.answered.contains(&i) => Some(Counter::Store),
                OnFail::Local if self.local.is_some() => Some(Counter::Local),
                _ => None,
            })
            .collect();
        let now = self.own_now().await;
        for i in which(&counters, None) {
            numbers[i] = reading(on_fail(plan, i), &plan.charges[i], now);
        }
        self.follow_nodes().await;
        let shared = which(&counters, Some(Counter::Local));
        if let Some(local) = self.local.as_ref().filter(|_| !shared.is_empty()) {
            let refused = refuses(&counters, numbers, |counter| counter != Some(Counter::Local));
            let answer = local.answer(op, plan, rules, &shared, refused, numbers).await;
            if answer.is_err() {
                for i in shared {
                    let allowed = reading(OnFail::Allow, &plan.charges[i], now);
                    (counters[i], numbers[i]) = (None, allowed);
                }
            }
        }
        if op == Op::Charge {
            self.roll_back(plan, &counters, numbers).await;
        }
        if let Some(local) = &self.local {
            let by_store = which(&counters, Some(Counter::Store));
            plan.local_at = local.follow(op, plan, rules, numbers, &by_store).await;
        }
        if counters.iter().any(|counter| *counter != Some(Counter::Store)) {
            plan.answered_by = AnsweredBy::Fallback;
        }
        plan.tell_all(op, numbers, |i| counters[i]);
    }

    /// Gives back what the store charged to a request that is refused by a rule it did not answer for.
    async fn roll_back(&self, plan: &Plan<'_>, counters: &Counters, numbers: &mut [Reading]) {
        let store = Some(Counter::Store);
        let refused_by_store = refuses(counters, numbers, |counter| counter == store);
        if refused_by_store || !refuses(counters, numbers, |counter| counter != store) {
            return;
        }
        let charged = |i: &usize| {
            plan.charges[*i].role != Role::Always && numbers[*i].verdict == Verdict::Allow
        };
        let back: SmallVec<[usize; 4]> =
            which(counters, store).into_iter().filter(charged).collect();
        let charges: SmallVec<[Charge<'_>; 4]> = back.iter().map(|i| plan.charges[*i]).collect();
        let mut told: Numbers = back.iter().map(|i| numbers[*i]).collect();
        refund::give_back(&self.store, &charges, &mut told).await;
        back.into_iter().zip(told).for_each(|(i, told)| numbers[i] = told);
    }
}

/// The places of the charges that a counter of the given kind counts.
fn which(counters: &Counters, counter: Option<Counter>) -> SmallVec<[usize; 4]> {
    (0..counters.len()).filter(|i| counters[*i] == counter).collect()
}

/// Whether a charge of the given kind refuses the request.
fn refuses(
    counters: &Counters,
    numbers: &[Reading],
    kind: impl Fn(Option<Counter>) -> bool,
) -> bool {
    counters.iter().zip(numbers).any(|(counter, told)| kind(*counter) && told.verdict.refuses())
}

/// What a rule says to a charge that nobody counted.
fn reading(on_fail: OnFail, charge: &Charge<'_>, now: Timestamp) -> Reading {
    let limit = charge.policy.limit();
    let told = Reading { limit, remaining: limit, now, ..Reading::default() };
    match (on_fail, charge.role) {
        (OnFail::Deny, Role::Enforce | Role::Always) => {
            Reading { verdict: Verdict::Deny, remaining: 0, retry: Retry::After(COME_BACK), ..told }
        }
        _ => told,
    }
}
