//! The counters that this node decides without asking the store: leased and asynchronous ones.

use std::sync::Arc;

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Micros;
use tidegate_rules::{Rule, RuleSet};

#[cfg(feature = "seeded-bugs")]
use crate::lease::BugSwitch;
use crate::lease::{
    LeaseBook, LeaseClock, LeaseRequest, Lenders, TakeOutcome, TaskQueue, UnitOrigin, lease_ttl,
    lends_alike,
};
use crate::plan::ChargePlan;
use crate::receipt::successor_rule;
use crate::sizing::counter_budget;
use crate::write_behind::{AdmitOutcome, AsyncBook, AsyncRequest, flush_interval};

/// The counters of a node, by consistency, and the calls to the store that they need.
#[derive(Debug)]
pub(crate) struct NodeCounters {
    pub(crate) leases: LeaseBook,
    pub(crate) flushes: AsyncBook,
    pub(crate) tasks: Arc<TaskQueue>,
}

/// How a node decides a rule without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMode {
    /// With units that it leases for this long.
    Leased { ttl: Micros },
    /// On its last view of the counter, with a flush at this interval.
    Async { interval: Micros },
}

/// How far one charge of a plan has got.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChargeState {
    /// Units were taken of this lease.
    Spent(UnitOrigin, Reading),
    /// The node admitted it on its view of the counter. This flush reports it.
    Admitted(u64, Reading),
    /// The node refuses it, because the store is short or the node's view shows no room.
    Refused(Reading),
    /// The answer to this question or flush decides.
    Wait(u64),
    /// The store decides it.
    Store,
    /// A shadow rule that would have to wait: it passes uncounted.
    Uncounted,
}

impl NodeMode {
    /// How a node decides a rule; `None` if the store decides each request.
    pub(crate) fn of(rule: &Rule) -> Option<Self> {
        let leased = lease_ttl(rule).map(|ttl| Self::Leased { ttl });
        leased.or_else(|| flush_interval(rule).map(|interval| Self::Async { interval }))
    }

    /// How a node decides a charge of a plan.
    pub(crate) fn of_charge(
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        charge: usize,
    ) -> Option<Self> {
        let rule = rules.get(plan.rule_index(charge));
        rule.filter(|_| plan.charges[charge].lent).and_then(Self::of)
    }
}

impl NodeCounters {
    pub(crate) fn new(clock: LeaseClock, max_bytes: usize) -> Self {
        let tasks = Arc::<TaskQueue>::default();
        let max_bytes = counter_budget(max_bytes);
        Self {
            leases: LeaseBook::new(clock.clone(), max_bytes, Arc::clone(&tasks)),
            flushes: AsyncBook::new(clock, max_bytes, Arc::clone(&tasks)),
            tasks,
        }
    }

    /// Allows borrowing from other regions.
    pub(crate) fn set_lenders(&mut self, lenders: Lenders) {
        self.leases.set_lenders(lenders);
    }

    /// Switches on a bug.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn set_bug(&mut self, bug: BugSwitch) {
        (self.leases.bug, self.flushes.bug) = (bug, bug);
    }

    /// Decides one charge of a plan as far as the node can. `first` is false for a request that
    /// has waited for an answer.
    pub(crate) fn decide_charge(
        &self,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        i: usize,
        nodes: u32,
        first: bool,
    ) -> ChargeState {
        let (charge, rule) = (&plan.charges[i], plan.rule_index(i));
        match NodeMode::of_charge(plan, rules, i) {
            None => ChargeState::Store,
            Some(NodeMode::Leased { ttl }) => {
                self.leases.take(LeaseRequest { charge, rules, rule, ttl, nodes }, first).into()
            }
            Some(NodeMode::Async { interval }) => {
                self.flushes.admit(AsyncRequest { charge, rules, rule, interval, nodes }).into()
            }
        }
    }

    /// Completes when the question or flush that a charge waits for has been answered.
    pub(crate) async fn answered(&self, mode: NodeMode, key: Fingerprint, number: u64) {
        match mode {
            NodeMode::Leased { .. } => self.leases.answered(key, number).await,
            NodeMode::Async { .. } => self.flushes.answered(key, number).await,
        }
    }

    /// Gives back what a charge of a refused plan took.
    pub(crate) fn give_back(
        &self,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        i: usize,
        state: &ChargeState,
    ) {
        let (charge, rule) = (&plan.charges[i], plan.rule_index(i));
        match *state {
            ChargeState::Spent(origin, _) => {
                let (key, cost) = (charge.key.fingerprint, charge.cost);
                let is_live = self.leases.give_back(key, cost, origin);
                if !is_live {
                    self.leases.count_expired(key, cost, origin);
                }
            }
            ChargeState::Admitted(flush, reading) => {
                self.flushes.give_back(charge, (rules, rule), flush, reading.now);
            }
            _ => {}
        }
    }

    pub(crate) fn sweep(&self) {
        self.leases.sweep();
        self.flushes.sweep();
    }

    /// Returns unspent units and flushes what was admitted, before the node stops.
    pub(crate) fn retire(&self) {
        self.leases.retire(|_, _| false);
        self.flushes.flush_all();
    }

    pub(crate) fn forget(&self, key: Fingerprint) {
        self.leases.forget(key);
        self.flushes.forget(key);
    }

    /// Follows a new rule set.
    pub(crate) fn install(&self, rules: &Arc<RuleSet>) {
        // Counters of unchanged rules keep their leases.
        self.leases.retire(|old, rule| {
            let successor = successor_rule(old, rule, rules).map(|at| &rules[at]);
            let same =
                |now: &Rule| now.limit() == old[rule].limit() && lends_alike(now, &old[rule]);
            successor.is_some_and(same)
        });
        self.flushes.move_to(rules, |old, rule| successor_rule(old, rule, rules));
    }
}

impl From<TakeOutcome> for ChargeState {
    fn from(outcome: TakeOutcome) -> Self {
        match outcome {
            TakeOutcome::Spent { origin, reading } => Self::Spent(origin, reading),
            TakeOutcome::Refused(reading) => Self::Refused(reading),
            TakeOutcome::Wait { question } => Self::Wait(question),
            TakeOutcome::Direct => Self::Store,
        }
    }
}

impl From<AdmitOutcome> for ChargeState {
    fn from(outcome: AdmitOutcome) -> Self {
        match outcome {
            AdmitOutcome::Admitted { flush, reading } => Self::Admitted(flush, reading),
            AdmitOutcome::Refused(reading) => Self::Refused(reading),
            AdmitOutcome::Wait { flush } => Self::Wait(flush),
            AdmitOutcome::Direct => Self::Store,
        }
    }
}
