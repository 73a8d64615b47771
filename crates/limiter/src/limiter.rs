//! The limiter: one rule set at a time over one store.

use std::pin::pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, QueueMode, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::{ApiKind, Facts, OnFail, Rule, RuleSet};

use crate::decision::{CounterLocation, Decision};
use crate::explain::Explanation;
use crate::local_fallback::{LocalFallback, NoFallback};
use crate::observer::{DecisionEvent, DecisionObserver, DecisionTimer, StoreClock};
use crate::plan::{ChargePlan, INLINE_CHARGES, PlanOptions};

/// Decides requests. Share it by reference or in an `Arc`; rules are swapped while it works.
#[derive(Debug)]
pub struct Limiter<S, L = NoFallback> {
    pub(crate) store: S,
    pub(crate) local: Option<LocalFallback<L>>,
    rules: ArcSwap<RuleSet>,
    observers: Vec<Arc<dyn DecisionObserver>>,
    timer: Option<Arc<dyn DecisionTimer>>,
    store_clock: Option<StoreClock>,
}

impl<S: Store> Limiter<S> {
    /// A limiter over a store.
    #[must_use]
    pub fn new(store: S, rules: RuleSet) -> Self {
        let rules = ArcSwap::from_pointee(rules);
        Self { store, local: None, rules, observers: Vec::new(), timer: None, store_clock: None }
    }

    /// The same limiter with a store in this process, on which rules with `on_fail: local` are
    /// decided while the other is gone. Each node then has an even share of the limit (rounded down,
    /// but at least one request), and what it admits is written to the store by
    /// [`settle`](Limiter::settle) when that is back.
    ///
    /// What is admitted over an interval `T` by a bucket with limit `B` and rate `r`, whose shares sum
    /// to `S` (at most `B`, unless there are more nodes than requests):
    /// - at most `B + S + 2rT`, whatever fails and however often, and in the same way no more than
    ///   twice the bound of any algorithm: the store and the shares are limiters of their own;
    /// - at most `B + kS + rT` when `k` times the store was gone for all nodes. While something is
    ///   owed that is `S` more, a settlement that comes late by `δ` adds `rδ`, and a node that is cut
    ///   off while others are not adds its share of the rate for as long;
    /// - at most `B + rT` on a single node, and the requests that are under way at once: its local
    ///   bucket knows all there is to know, and decides until the store knows it as well.
    ///
    /// Of a concurrency limit of `B` at most `B + S` slots are held: those that shares gave move to the
    /// store when they are renewed, and are not written otherwise.
    #[must_use]
    pub fn with_local<L: Store>(self, local: L) -> Limiter<S, L> {
        let local = LocalFallback::new(local, self.rules(), self.store.node_count());
        Limiter {
            store: self.store,
            local: Some(local),
            rules: self.rules,
            observers: self.observers,
            timer: self.timer,
            store_clock: self.store_clock,
        }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// The same limiter, with one more who hears of its decisions.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn DecisionObserver>) -> Self {
        observer.on_rules_installed(&self.rules.load());
        self.observers.push(observer);
        self
    }

    /// The same limiter, with its decisions timed.
    #[must_use]
    pub fn with_timer(mut self, stopwatch: Arc<dyn DecisionTimer>) -> Self {
        self.timer = Some(stopwatch);
        self
    }

    /// The same limiter, whose decisions say how long the store took by a clock ([`Decision::store_time`]).
    #[must_use]
    pub fn with_store_clock(mut self, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.store_clock = Some(StoreClock::new(clock));
        self
    }

    /// Decides a request and charges all rules that govern it, or none. It always answers: where the
    /// store cannot, each rule's `on_fail` does.
    ///
    /// `cost` multiplies what a rule says that a request costs; to a rule that leaves it to the request
    /// it is the cost.
    pub fn decide(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(PlanOptions::all_rules(Op::Charge), facts, cost)
    }

    /// Decides a request under rules of [`rules`](Self::rules) that its facts were found under, so that
    /// it sees one rule set from beginning to end. `told` says what the request costs to a rule that
    /// leaves it to the request ([`Cost::is_from_request`]), at least one; other rules know.
    ///
    /// [`Cost::is_from_request`]: tidegate_rules::Cost::is_told_by_request
    pub fn decide_with_rules(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        told: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(
            rules,
            PlanOptions::all_rules(Op::Charge),
            facts,
            cost_from_request(told),
        )
    }

    /// What [`decide`](Self::decide) would say; nothing changes. A rule that is named answers by the
    /// parts of its key alone, whatever requests it governs.
    pub async fn peek(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.peek_with_queue(facts, rule, cost, QueueMode::Hold).await
    }

    pub(crate) async fn peek_with_queue(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
        queue: QueueMode,
    ) -> Decision {
        if let Some(rule) = rule
            && let Some(decision) = self.peek_rule(facts, rule, cost, queue).await
        {
            return decision;
        }
        self.apply(
            PlanOptions { only_rule: rule, queue, ..PlanOptions::all_rules(Op::Peek) },
            facts,
            cost,
        )
        .await
    }

    /// Charges a cost that is known only afterwards, into debt if need be.
    pub async fn force(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.apply(
            PlanOptions { only_rule: rule, ..PlanOptions::all_rules(Op::Force) },
            facts,
            cost,
        )
        .await
    }

    /// Gives back what was charged at an instant of the clock that the decision told; without one,
    /// now.
    pub async fn refund(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
        charged_at: Option<Timestamp>,
    ) -> Decision {
        let charged_at = match charged_at {
            Some(at) => at,
            None => self.now().await.unwrap_or_default(),
        };
        let refund = PlanOptions::all_rules(Op::Refund { charged_at });
        self.apply(PlanOptions { only_rule: rule, ..refund }, facts, cost).await
    }

    /// Gives back what a decision charged, once: the decision is its own receipt. What a local share
    /// admitted is given back there; once that is written to the store it stays charged.
    pub async fn refund_decision(&self, mut decision: Decision) {
        self.refund_receipt(&decision.take_receipt(|_| true).for_rules(&self.rules())).await;
    }

    /// Which rules govern a request, whose counters they are, how those stand, and what decides.
    pub async fn explain(&self, facts: &Facts<'_>, cost: u32) -> Explanation {
        let rules = self.rules();
        let mut completed = facts.borrowed();
        rules.enrich(&mut completed);
        let decision = self.apply_with_rules(
            Arc::clone(&rules),
            PlanOptions::all_rules(Op::Peek),
            facts,
            multiply_base_cost(cost),
        );
        Explanation::new(decision.await, &completed, cost)
    }

    /// Puts a rule set into force. Counters of rules that keep their id, algorithm and window are
    /// kept, and what was used stays used.
    ///
    /// # Errors
    /// When neither the store's clock nor a local one can be read; the rules in force stay.
    pub async fn install(&self, rules: RuleSet) -> Result<(), StoreError> {
        let now = self.now().await?;
        let rules = Arc::new(rules.inherit_from(&self.rules.load(), now));
        self.rules.store(Arc::clone(&rules));
        self.observers.iter().for_each(|observer| observer.on_rules_installed(&rules));
        if let Some(local) = &self.local {
            local.install(&rules, self.store.node_count()).await;
        }
        Ok(())
    }

    /// Has the local shares follow the number of nodes. Decisions on shares do so themselves; a task
    /// that also calls this every now and then has new shares drain from when the number changed.
    pub async fn sync_node_count(&self) {
        if let Some(local) = &self.local {
            local.divide_among(self.store.node_count()).await;
        }
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The local store, if there is one.
    #[must_use]
    pub fn local(&self) -> Option<&L> {
        self.local.as_ref().map(|local| &local.store)
    }

    /// The time where the store has just not answered: by the local clock, so that it is not asked
    /// and waited for once more.
    pub(crate) async fn local_now(&self) -> Timestamp {
        let now = match &self.local {
            Some(local) => local.store.now().await,
            None => self.store.now().await,
        };
        now.unwrap_or_default()
    }

    /// The store's clock; while it is gone the local one, which also tells wall time.
    ///
    /// # Errors
    /// When neither can be read.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        match (self.store.now().await, &self.local) {
            (Err(_), Some(local)) => local.store.now().await,
            (told, _) => told,
        }
    }

    pub(crate) fn apply(
        &self,
        asking: PlanOptions<'_>,
        facts: &Facts<'_>,
        cost: u32,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(self.rules(), asking, facts, multiply_base_cost(cost))
    }

    /// The one future that every decision is. What calls it gives it on instead of waiting for it, because a
    /// future inside another is copied when it is made and what it answers when it is done, and both are large.
    pub(crate) async fn apply_with_rules(
        &self,
        rules: Arc<RuleSet>,
        asking: PlanOptions<'_>,
        facts: &Facts<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let started = self.start_timer(asking.op);
        let decided = {
            if rules.has_predecessors() {
                Box::pin(self.migrate_usage(&rules, facts)).await;
            }
            let mut plan = ChargePlan::empty();
            plan.fill(&rules, facts, asking, cost);
            let op = match asking.op {
                Op::Charge if plan.refused => Op::Peek,
                op => op,
            };
            // Pinned where it is made: what is awaited is moved first, with all the room it has.
            pin!(self.apply_plan(op, &mut plan, &rules)).await;
            self.stop_timer(started);
            if asking.op == Op::Charge {
                self.notify_observers(&plan, &rules, facts);
            }
            let ChargePlan {
                readings,
                answered_by,
                charge_records: paid,
                open_ended,
                local_charged_at: local_at,
                store_time,
                ..
            } = plan;
            (readings, answered_by, paid, open_ended, local_at, store_time)
        };
        let (readings, answered_by, paid, open_ended, local_at, store_time) = decided;
        Decision {
            rules,
            readings,
            answered_by,
            charge_records: paid,
            open_ended,
            local_charged_at: local_at,
            store_time,
        }
    }

    /// Tells whoever hears of decisions.
    #[inline]
    pub(crate) fn notify_observers(
        &self,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        facts: &Facts<'_>,
    ) {
        if !self.observers.is_empty() {
            let decided = DecisionEvent::new(plan, rules, facts);
            self.observers.iter().for_each(|observer| observer.on_decision(&decided));
        }
    }

    /// Tells whoever hears of decisions of a bucket that no rule names.
    #[inline]
    pub(crate) fn notify_ad_hoc_charge(&self, door: ApiKind, by: AnsweredBy, verdict: Verdict) {
        self.observers.iter().for_each(|observer| observer.on_ad_hoc_charge(door, by, verdict));
    }

    /// Says that a decision begins; when, if it is one that is timed.
    #[inline]
    pub(crate) fn start_timer(&self, op: Op) -> Option<Timestamp> {
        self.timer.as_ref().filter(|_| op == Op::Charge)?.start()
    }

    /// Says that a decision is made.
    #[inline]
    pub(crate) fn stop_timer(&self, started: Option<Timestamp>) {
        if let (Some(stopwatch), Some(started)) = (&self.timer, started) {
            stopwatch.stop(started);
        }
    }

    /// Whether somebody hears of decisions.
    pub(crate) const fn has_observers(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Asks the store, or where it does not answer the rules' `on_fail`, and fills in the numbers.
    ///
    /// What is rare or waits for a network anyway is boxed: its state is large, and would be carried
    /// about with every decision.
    pub(crate) async fn apply_plan(&self, op: Op, plan: &mut ChargePlan<'_>, rules: &Arc<RuleSet>) {
        if plan.charges.is_empty() {
            return;
        }
        let (mut few, mut many) = ([Reading::default(); INLINE_CHARGES], Vec::new());
        let numbers = match few.get_mut(..plan.charges.len()) {
            Some(few) => few,
            None => {
                many.resize(plan.charges.len(), Reading::default());
                many.as_mut_slice()
            }
        };
        let asked_at = self.store_clock.as_ref().map(StoreClock::now);
        let answered = match &self.local {
            Some(local) if local.unsettled.has_any() => {
                Box::pin(self.apply_to_settled(local, op, plan, rules, numbers)).await
            }
            _ => self.store.apply(op, &plan.charges, numbers).await,
        };
        if let (Some(clock), Some(asked_at)) = (&self.store_clock, asked_at) {
            plan.store_time = Some(clock.now().since(asked_at));
        }
        match answered {
            Ok(AnsweredBy::Store) => {
                if let Some(local) = &self.local
                    && has_local_rule(plan, rules)
                {
                    self.sync_node_count().await;
                    Box::pin(local.mirror_all(op, plan, rules, numbers)).await;
                }
                plan.set_readings(op, numbers, |_| Some(CounterLocation::Store));
            }
            // A remembered refusal changed nothing and did not ask for the others' counters.
            Ok(by) => {
                plan.answered_by = by;
                let told = numbers.iter().enumerate();
                told.filter(|(_, told)| told.verdict.refuses())
                    .for_each(|(i, told)| plan.set_reading(i, *told));
            }
            Err(error) => Box::pin(self.fall_back(op, plan, rules, numbers, &error)).await,
        }
    }
}

/// So many times what a rule says that a request costs.
pub(crate) fn multiply_base_cost(count: impl Into<u64>) -> impl Fn(&Rule) -> u64 {
    let count = count.into();
    move |rule| rule.cost().base().saturating_mul(count)
}

/// What a request costs to a rule that leaves it to the request; other rules know.
pub(crate) fn cost_from_request(told: impl Fn(&Rule) -> u64) -> impl Fn(&Rule) -> u64 {
    move |rule| match rule.cost() {
        cost if cost.is_from_request() => told(rule).max(1),
        cost => cost.base(),
    }
}

/// Whether a rule of the plan is decided on a local share while the store is gone.
fn has_local_rule(plan: &ChargePlan<'_>, rules: &RuleSet) -> bool {
    (0..plan.charges.len()).any(|i| plan.on_fail(i, rules) == OnFail::Local)
}
