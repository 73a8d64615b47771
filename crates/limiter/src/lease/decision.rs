//! Decisions of requests with leased rules. Units are taken first, then the store is asked for the
//! other charges. A refusal by any of them gives the units back, so the request is still charged
//! all or none.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Charge, Op, Role, Store};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Consistency, Rule, RuleSet};

use super::lease_book::{LeaseBook, LeaseRequest, TakeOutcome};
use super::seeded_bug::SeededBug;
use crate::decision::CounterLocation;
use crate::limiter::{Limiter, has_local_rule};
use crate::plan::ChargePlan;

/// How often a request waits for an answer before it is charged at the store.
const MAX_WAITS: usize = 3;

/// What became of each charge of a plan.
pub(crate) type ChargeStates = SmallVec<[ChargeState; 4]>;

/// What became of one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChargeState {
    /// Units were taken of the lease granted at this instant.
    Spent(Timestamp, Reading),
    /// The node refuses it, because the store is short.
    Refused(Reading),
    /// The answer to this question decides.
    Wait(u64),
    /// The store decides it.
    Store,
    /// A shadow rule that would have to wait: it passes uncounted.
    Uncounted,
}

/// What the leases make of a plan.
#[expect(clippy::large_enum_variant, reason = "a box would cost an allocation a request")]
pub(crate) enum LeaseAttempt {
    /// The plan is decided without the store.
    Decided,
    /// Some charges need the store.
    Pending(ChargeStates),
}

/// How long units of a rule are leased; `None` if the store decides each request.
pub(crate) fn lease_ttl(rule: &Rule) -> Option<Micros> {
    match rule.applied_consistency() {
        Consistency::Leased(leased) => Some(leased.terms().ttl),
        _ => None,
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Takes units for the leased charges of a plan, and decides the plan if that suffices.
    pub(crate) fn take_units(
        &self,
        book: &LeaseBook,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
    ) -> LeaseAttempt {
        let nodes = self.store.node_count();
        let take = |i| take_for_charge(book, plan, rules, i, nodes, true);
        let states: ChargeStates = (0..plan.charges.len()).map(take).collect();
        if is_refused(plan, &states) {
            refuse_locally(book, plan, &states);
            return LeaseAttempt::Decided;
        }
        let local = |(charge, state): (&Charge<'_>, &ChargeState)| match state {
            ChargeState::Spent(..) => true,
            ChargeState::Refused(_) => charge.role == Role::Shadow,
            _ => false,
        };
        if !plan.charges.iter().zip(&states).all(local) || self.mirrors(plan, rules) {
            return LeaseAttempt::Pending(states);
        }
        record_results(book, plan, &states);
        plan.answered_by = AnsweredBy::Lease;
        LeaseAttempt::Decided
    }

    /// Decides a plan for which the leases did not suffice.
    pub(crate) async fn complete_with_store(
        &self,
        book: &LeaseBook,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        mut states: ChargeStates,
    ) {
        let waited = self.wait_for_units(book, plan, rules, &mut states).await;
        if is_refused(plan, &states) {
            return refuse_locally(book, plan, &states);
        }
        plan.answered_by = if waited { AnsweredBy::Store } else { AnsweredBy::Lease };
        self.postpone_shadow_charges(book, plan, rules, &mut states);
        loop {
            let which = indices_for_store(&states);
            if !which.is_empty() && !self.charge_at_store(plan, rules, &which).await {
                // Charges of an earlier round are undone by hand; there is none in most requests.
                self.undo_charges(plan, rules).await;
                return refuse_locally(book, plan, &states);
            }
            which.into_iter().for_each(|i| states[i] = ChargeState::Uncounted);
            if !self.replace_ended_units(book, plan, rules, &mut states) {
                break;
            }
            if is_refused(plan, &states) {
                self.undo_charges(plan, rules).await;
                return refuse_locally(book, plan, &states);
            }
        }
        record_results(book, plan, &states);
        self.mirror_leased_charges(plan, rules, &states).await;
    }

    /// Waits for the answers that decide the plan. Returns whether it waited.
    async fn wait_for_units(
        &self,
        book: &LeaseBook,
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
                book.answered(plan.charges[i].key.fingerprint, question).await;
                waited = true;
                let nodes = self.store.node_count();
                states[i] = take_for_charge(book, plan, rules, i, nodes, false);
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

    /// Charges leased rules in shadow mode later, if no other rule needs the store: they never make
    /// a request wait.
    fn postpone_shadow_charges(
        &self,
        book: &LeaseBook,
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
            book.charge_later(&plan.charges[i], rules, plan.rule_index(i));
            states[i] = ChargeState::Uncounted;
        }
    }

    /// Charges part of a plan at the store. Returns whether it was admitted.
    async fn charge_at_store(
        &self,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        which: &[usize],
    ) -> bool {
        let mut part = plan.subset(which);
        self.apply_to_store(Op::Charge, &mut part, rules).await;
        plan.adopt_subset(&part, which);
        !part.readings.iter().any(|reading| reading.verdict.refuses())
    }

    /// Takes units again for those whose lease ended while the request waited: they must not be
    /// spent. Returns whether there were any.
    fn replace_ended_units(
        &self,
        book: &LeaseBook,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &mut ChargeStates,
    ) -> bool {
        let mut ended = false;
        for i in 0..states.len() {
            let ChargeState::Spent(granted_at, _) = states[i] else { continue };
            if !book.is_live(plan.charges[i].key.fingerprint, granted_at) {
                ended = true;
                let nodes = self.store.node_count();
                states[i] = match take_for_charge(book, plan, rules, i, nodes, false) {
                    ChargeState::Wait(_) => ChargeState::Store,
                    state => state,
                };
            }
        }
        ended
    }

    /// Refunds what the store has charged of a request that is refused after all.
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

    /// Mirrors what was admitted on leases to the local shares.
    async fn mirror_leased_charges(
        &self,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        states: &ChargeStates,
    ) {
        let Some(local) = self.local.as_ref().filter(|_| has_local_rule(plan, rules)) else {
            return;
        };
        let spent = |i: &usize| matches!(states[*i], ChargeState::Spent(..));
        let spent: SmallVec<[usize; 4]> = (0..states.len()).filter(spent).collect();
        self.sync_node_count().await;
        let numbers = plan.numbers();
        let at = local.mirror_charges(Op::Charge, plan, rules, &numbers, &spent).await;
        let known = Some(plan.local_charged_at).filter(|known| *known > Timestamp::EPOCH);
        plan.local_charged_at = known.map_or(at, |known| known.min(at));
    }
}

/// Takes units for one charge of a plan.
fn take_for_charge(
    book: &LeaseBook,
    plan: &ChargePlan<'_>,
    rules: &Arc<RuleSet>,
    i: usize,
    nodes: u32,
    first: bool,
) -> ChargeState {
    let (charge, rule) = (&plan.charges[i], plan.rule_index(i));
    let ttl = rules.get(rule).filter(|_| charge.lent).and_then(lease_ttl);
    let Some(ttl) = ttl else { return ChargeState::Store };
    match book.take(LeaseRequest { charge, rules, rule, ttl, nodes }, first) {
        TakeOutcome::Spent { granted_at, reading } => ChargeState::Spent(granted_at, reading),
        TakeOutcome::Refused(reading) => ChargeState::Refused(reading),
        TakeOutcome::Wait { question } => ChargeState::Wait(question),
        TakeOutcome::Direct => ChargeState::Store,
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
fn refuse_locally(book: &LeaseBook, plan: &mut ChargePlan<'_>, states: &ChargeStates) {
    for (i, state) in states.iter().enumerate() {
        let Charge { key, cost, role, .. } = plan.charges[i];
        match *state {
            ChargeState::Spent(granted_at, reading) => {
                book.give_back(key.fingerprint, cost, granted_at);
                let remaining = reading.remaining.saturating_add(cost).min(reading.limit);
                plan.set_reading(i, Reading { remaining, ..reading });
            }
            ChargeState::Refused(reading) => plan.set_reading(i, refusal_for(role, reading)),
            ChargeState::Wait(_) | ChargeState::Store | ChargeState::Uncounted => {}
        }
    }
    if is_refused(plan, states) {
        plan.answered_by = AnsweredBy::Lease;
    }
}

/// Sets the readings of leased charges, and records what was spent.
fn record_results(book: &LeaseBook, plan: &mut ChargePlan<'_>, states: &ChargeStates) {
    for (i, state) in states.iter().enumerate() {
        let charge = plan.charges[i];
        match *state {
            ChargeState::Spent(granted_at, reading) => {
                let dated = match book.bug.has(SeededBug::RefundDatedByDecision) {
                    true => reading.now,
                    false => granted_at,
                };
                plan.set_reading(i, reading);
                plan.record_charge(i, CounterLocation::Lease(dated));
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
