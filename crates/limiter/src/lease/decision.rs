//! Decisions of requests with leased or asynchronous rules. The node decides these first, then asks
//! the store for the other charges. A refusal by any of them gives the units back, so the request
//! is still charged all or none.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Charge, Op, Role, Store};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Consistency, Rule, RuleSet};

use super::held_leases::UnitOrigin;
use super::lease_book::LeaseRequest;
use super::seeded_bug::SeededBug;
use crate::decision::CounterLocation;
use crate::limiter::{Limiter, has_local_rule};
use crate::node_counters::{ChargeState, NodeCounters, NodeMode};
use crate::plan::ChargePlan;
use crate::write_behind::AsyncRequest;

/// How many answers a request waits for before it is charged at the store.
const MAX_WAITS: usize = 3;

/// How far each charge of a plan has got.
pub(crate) type ChargeStates = SmallVec<[ChargeState; 4]>;

/// How long units of a rule are leased; `None` if the store decides each request.
pub(crate) fn lease_ttl(rule: &Rule) -> Option<Micros> {
    match rule.applied_consistency() {
        Consistency::Leased(leased) => Some(leased.terms().ttl),
        _ => None,
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Decides the leased and asynchronous charges of a plan, and the plan itself if it has no
    /// others. Otherwise returns how far each charge has got.
    pub(crate) fn take_units(
        &self,
        counters: &NodeCounters,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
    ) -> Option<ChargeStates> {
        let nodes = self.store.node_count();
        let take = |i| counters.decide_charge(plan, rules, i, nodes, true);
        let states: ChargeStates = (0..plan.charges.len()).map(take).collect();
        if is_refused(plan, &states) {
            refuse_locally(counters, plan, rules, &states);
            return None;
        }
        let local = |(charge, state): (&Charge<'_>, &ChargeState)| match state {
            ChargeState::Spent(..) | ChargeState::Admitted(..) => true,
            ChargeState::Refused(_) => charge.role == Role::Shadow,
            _ => false,
        };
        if !plan.charges.iter().zip(&states).all(local) || self.mirrors(plan, rules) {
            return Some(states);
        }
        plan.answered_by = answered_locally(plan, rules, |_| true);
        record_results(counters, plan, &states);
        None
    }

    /// Decides a plan that the node could not decide by itself.
    pub(crate) async fn complete_with_store(
        &self,
        counters: &NodeCounters,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        mut states: ChargeStates,
    ) {
        let waited = self.wait_for_units(counters, plan, rules, &mut states).await;
        if is_refused(plan, &states) {
            return refuse_locally(counters, plan, rules, &states);
        }
        plan.answered_by = match waited {
            true => AnsweredBy::Store,
            false => answered_locally(plan, rules, |_| true),
        };
        self.postpone_shadow_charges(counters, plan, rules, &mut states);
        loop {
            let which = indices_for_store(&states);
            if !which.is_empty() && !self.charge_at_store(counters, plan, rules, &which).await {
                if self.borrow_for_refused(counters, plan, rules, &mut states) {
                    continue;
                }
                // The refused call charged nothing. Few requests have charges of earlier rounds.
                self.undo_charges(plan, rules).await;
                return refuse_locally(counters, plan, rules, &states);
            }
            which.into_iter().for_each(|i| states[i] = ChargeState::Uncounted);
            if !self.replace_ended_units(counters, plan, rules, &mut states) {
                break;
            }
            if is_refused(plan, &states) {
                self.undo_charges(plan, rules).await;
                return refuse_locally(counters, plan, rules, &states);
            }
        }
        record_results(counters, plan, &states);
        self.mirror_local_charges(plan, rules, &states).await;
    }

    /// Waits for the answers that decide the plan. Returns whether it waited.
    async fn wait_for_units(
        &self,
        counters: &NodeCounters,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &mut ChargeStates,
    ) -> bool {
        let mut waited = false;
        for i in 0..states.len() {
            for _ in 0..MAX_WAITS {
                let ChargeState::Wait(question) = states[i] else { break };
                if plan.charges[i].role == Role::Shadow {
                    states[i] = ChargeState::Uncounted;
                    break;
                }
                let Some(mode) = NodeMode::of_charge(plan, rules, i) else { break };
                counters.answered(mode, plan.charges[i].key.fingerprint, question).await;
                waited = true;
                let nodes = self.store.node_count();
                states[i] = counters.decide_charge(plan, rules, i, nodes, false);
            }
            if matches!(states[i], ChargeState::Wait(_)) {
                states[i] = ChargeState::Store;
            }
            if is_refused(plan, states) {
                break;
            }
        }
        waited
    }

    /// Charges leased and asynchronous rules in shadow mode later, if no other rule needs the
    /// store: they never make a request wait.
    fn postpone_shadow_charges(
        &self,
        counters: &NodeCounters,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &mut ChargeStates,
    ) {
        let postponed = |charge: &Charge<'_>| charge.lent && charge.role == Role::Shadow;
        let which = indices_for_store(states);
        if which.iter().any(|i| !postponed(&plan.charges[*i])) {
            return;
        }
        for i in which {
            counters.leases.charge_later(&plan.charges[i], rules, plan.rule_index(i));
            states[i] = ChargeState::Uncounted;
        }
    }

    /// Charges part of a plan at the store. Returns whether it was admitted.
    async fn charge_at_store(
        &self,
        counters: &NodeCounters,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        which: &[usize],
    ) -> bool {
        let mut part = plan.subset(which);
        let asked_at = counters.flushes.now();
        self.apply_to_store(Op::Charge, &mut part, rules).await;
        if part.answered_by == AnsweredBy::Store {
            self.update_views(counters, &mut part, rules, asked_at);
        }
        plan.adopt_subset(&part, which);
        !part.readings.iter().any(|reading| reading.verdict.refuses())
    }

    /// Takes units of other regions for the charges that the store has just refused. Returns
    /// whether that admits all of them; the others of the same call are then charged again.
    fn borrow_for_refused(
        &self,
        counters: &NodeCounters,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &mut ChargeStates,
    ) -> bool {
        if plan.answered_by != AnsweredBy::Store {
            return false;
        }
        let nodes = self.store.node_count();
        for i in indices_for_store(states) {
            let reading = *plan.reading_of(i);
            if plan.is_charged(i) {
                // It is charged also if the request is refused.
                states[i] = ChargeState::Uncounted;
            }
            if !reading.verdict.refuses() {
                continue;
            }
            let (Some(answer), Some(NodeMode::Leased { ttl })) =
                (reading.numbers, NodeMode::of_charge(plan, rules, i))
            else {
                return false;
            };
            let (charge, rule) = (&plan.charges[i], plan.rule_index(i));
            let request = LeaseRequest { charge, rules, rule, ttl, nodes };
            let Some(spent) = counters.leases.borrow_for_refused(request, answer) else {
                return false;
            };
            states[i] = spent.into();
        }
        true
    }

    /// Passes the store's answers on to the node's counters. A reading then says what is left
    /// for this node: with the units that it holds, without those that it has not flushed.
    fn update_views(
        &self,
        counters: &NodeCounters,
        part: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        asked_at: Timestamp,
    ) {
        let nodes = self.store.node_count();
        for (i, reading) in part.numbers().into_iter().enumerate() {
            let (charge, rule) = (&part.charges[i], part.rule_index(i));
            let remaining = match NodeMode::of_charge(part, rules, i) {
                Some(NodeMode::Leased { .. }) => {
                    let held = counters.leases.on_direct_answer(charge, reading);
                    reading.remaining.saturating_add(held).min(reading.limit)
                }
                Some(NodeMode::Async { interval }) => {
                    let request = AsyncRequest { charge, rules, rule, interval, nodes };
                    let open = counters.flushes.on_direct_answer(request, reading, asked_at);
                    reading.remaining.saturating_sub(open)
                }
                None => continue,
            };
            part.set_remaining(i, remaining);
        }
    }

    /// Takes new units for charges whose lease ended while the request waited, because the old ones
    /// must not be spent. Returns whether there were any.
    fn replace_ended_units(
        &self,
        counters: &NodeCounters,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &mut ChargeStates,
    ) -> bool {
        let mut ended = false;
        for i in 0..states.len() {
            let ChargeState::Spent(origin, _) = states[i] else { continue };
            let Charge { key, cost, .. } = plan.charges[i];
            if !counters.leases.is_live(key.fingerprint, origin) {
                ended = true;
                counters.leases.count_expired(key.fingerprint, cost, origin);
                let nodes = self.store.node_count();
                states[i] = match counters.decide_charge(plan, rules, i, nodes, false) {
                    ChargeState::Wait(_) => ChargeState::Store,
                    state => state,
                };
            }
        }
        ended
    }

    /// Refunds what the store has charged for a request that another rule refuses.
    async fn undo_charges(&self, plan: &mut ChargePlan<'_>, rules: &Arc<RuleSet>) {
        let always = |charge: &Charge<'_>| charge.role == Role::Always;
        let undone = plan.take_receipt(rules, |charge| !always(charge));
        if !undone.items.is_empty() {
            self.refund_receipt(&undone).await;
        }
    }

    /// Whether charges must be mirrored to a local share.
    fn mirrors(&self, plan: &ChargePlan<'_>, rules: &RuleSet) -> bool {
        self.local.is_some() && has_local_rule(plan, rules)
    }

    /// Mirrors what the node admitted by itself to the local shares.
    async fn mirror_local_charges(
        &self,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &ChargeStates,
    ) {
        let Some(local) = self.local.as_ref().filter(|_| has_local_rule(plan, rules)) else {
            return;
        };
        // Units of another region do not count against the share of this one.
        let spent = |i: &usize| match states[*i] {
            ChargeState::Spent(origin, _) => origin.lender.is_none(),
            ChargeState::Admitted(..) => true,
            _ => false,
        };
        let spent: SmallVec<[usize; 4]> = (0..states.len()).filter(spent).collect();
        self.sync_node_count().await;
        let numbers = plan.numbers();
        let at = local.mirror_charges(Op::Charge, plan, rules, &numbers, &spent).await;
        plan.set_mirrored_at(at);
    }
}

/// Whether a rule that is enforced refuses the request.
fn is_refused(plan: &ChargePlan<'_>, states: &ChargeStates) -> bool {
    let refuses = |(charge, state): (&Charge<'_>, &ChargeState)| {
        charge.role != Role::Shadow && matches!(state, ChargeState::Refused(_))
    };
    plan.charges.iter().zip(states).any(refuses)
}

/// Refuses a plan: gives the units back and sets the readings that are known. The other counters
/// were not read.
fn refuse_locally(
    counters: &NodeCounters,
    plan: &mut ChargePlan<'_>,
    rules: &Arc<RuleSet>,
    states: &ChargeStates,
) {
    for (i, state) in states.iter().enumerate() {
        let charge = plan.charges[i];
        counters.give_back(plan, rules, i, state);
        match *state {
            ChargeState::Spent(_, reading) | ChargeState::Admitted(_, reading) => {
                let remaining = reading.remaining.saturating_add(charge.cost).min(reading.limit);
                plan.set_reading(i, Reading { remaining, ..reading });
            }
            ChargeState::Refused(reading) => {
                plan.set_reading(i, refusal_for(charge.role, reading));
            }
            ChargeState::Wait(_) | ChargeState::Store | ChargeState::Uncounted => {}
        }
    }
    if is_refused(plan, states) {
        let refuses = |i: usize| matches!(states[i], ChargeState::Refused(_));
        plan.answered_by = answered_locally(plan, rules, refuses);
    }
}

/// The component that decided a plan without the store: leases if any of the charges `which` is
/// leased.
fn answered_locally(
    plan: &ChargePlan<'_>,
    rules: &Arc<RuleSet>,
    which: impl Fn(usize) -> bool,
) -> AnsweredBy {
    let mode = |i: usize| NodeMode::of_charge(plan, rules, i);
    let leased = |i: usize| which(i) && matches!(mode(i), Some(NodeMode::Leased { .. }));
    match (0..plan.charges.len()).any(leased) {
        true => AnsweredBy::Lease,
        false => AnsweredBy::Async,
    }
}

/// Sets the readings of the charges that the node decided, and records what was charged. Units of
/// another region are named as what decided, unless a store did not answer.
fn record_results(counters: &NodeCounters, plan: &mut ChargePlan<'_>, states: &ChargeStates) {
    for (i, state) in states.iter().enumerate() {
        let charge = plan.charges[i];
        match *state {
            ChargeState::Spent(origin, reading) => {
                let granted_at = match counters.leases.bug.has(SeededBug::RefundDatedByDecision) {
                    true => reading.now,
                    false => origin.granted_at,
                };
                plan.set_reading(i, reading);
                plan.record_charge(i, CounterLocation::Lease(UnitOrigin { granted_at, ..origin }));
                if origin.lender.is_some() && plan.answered_by != AnsweredBy::Fallback {
                    plan.answered_by = AnsweredBy::Borrowed;
                }
            }
            ChargeState::Admitted(flush, reading) => {
                plan.set_reading(i, reading);
                plan.record_charge(i, CounterLocation::Async { flush });
            }
            ChargeState::Refused(reading) => plan.set_reading(i, refusal_for(charge.role, reading)),
            ChargeState::Wait(_) | ChargeState::Store | ChargeState::Uncounted => {}
        }
    }
}

fn refusal_for(role: Role, reading: Reading) -> Reading {
    let verdict = if role == Role::Shadow { Verdict::ShadowDeny } else { Verdict::Deny };
    Reading { verdict, ..reading }
}

/// Indices of the charges that the store decides.
fn indices_for_store(states: &ChargeStates) -> SmallVec<[usize; 4]> {
    let store = |i: &usize| matches!(states[*i], ChargeState::Store);
    (0..states.len()).filter(store).collect()
}
