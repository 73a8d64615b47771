//! The limiter: one rule set at a time over one store.

use std::pin::pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, Queue, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Door, Facts, OnFail, Rule, RuleSet};

use crate::decision::{Counter, Decision};
use crate::explain::Explanation;
use crate::local::{Local, NoLocal};
use crate::observe::{Decided, Observer, Stopwatch, StoreClock};
use crate::plan::{Asking, FEW, Plan};

/// Decides requests. Share it by reference or in an `Arc`; rules are swapped while it works.
#[derive(Debug)]
pub struct Limiter<S, L = NoLocal> {
    pub(crate) store: S,
    pub(crate) local: Option<Local<L>>,
    rules: ArcSwap<RuleSet>,
    observers: Vec<Arc<dyn Observer>>,
    stopwatch: Option<Arc<dyn Stopwatch>>,
    store_clock: Option<StoreClock>,
}

impl<S: Store> Limiter<S> {
    /// A limiter over a store.
    #[must_use]
    pub fn new(store: S, rules: RuleSet) -> Self {
        let rules = ArcSwap::from_pointee(rules);
        Self {
            store,
            local: None,
            rules,
            observers: Vec::new(),
            stopwatch: None,
            store_clock: None,
        }
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
        let local = Local::new(local, self.rules(), self.store.nodes());
        Limiter {
            store: self.store,
            local: Some(local),
            rules: self.rules,
            observers: self.observers,
            stopwatch: self.stopwatch,
            store_clock: self.store_clock,
        }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// The same limiter, with one more who hears of its decisions.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        observer.installed(&self.rules.load());
        self.observers.push(observer);
        self
    }

    /// The same limiter, with its decisions timed.
    #[must_use]
    pub fn timed_by(mut self, stopwatch: Arc<dyn Stopwatch>) -> Self {
        self.stopwatch = Some(stopwatch);
        self
    }

    /// The same limiter, whose decisions say how long the store took by a clock ([`Decision::store_time`]).
    #[must_use]
    pub fn store_timed_by(mut self, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.store_clock = Some(StoreClock::new(clock));
        self
    }

    /// Decides a request and charges all rules that govern it, or none. It always answers: where the
    /// store cannot, each rule's `on_fail` does.
    ///
    /// `cost` multiplies what a rule says that a request costs; to a rule that leaves it to the request
    /// it is the cost.
    pub fn decide(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(Asking::all(Op::Charge), facts, cost)
    }

    /// Decides a request under rules of [`rules`](Self::rules) that its facts were found under, so that
    /// it sees one rule set from beginning to end. `told` says what the request costs to a rule that
    /// leaves it to the request ([`Cost::is_told_by_request`]), at least one; other rules know.
    ///
    /// [`Cost::is_told_by_request`]: tidegate_rules::Cost::is_told_by_request
    pub fn decide_under(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        told: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_under(rules, Asking::all(Op::Charge), facts, told_by(told))
    }

    /// What [`decide`](Self::decide) would say; nothing changes. A rule that is named answers by the
    /// parts of its key alone, whatever requests it governs.
    pub async fn peek(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.peek_for(facts, rule, cost, Queue::Hold).await
    }

    pub(crate) async fn peek_for(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
        queue: Queue,
    ) -> Decision {
        if let Some(rule) = rule
            && let Some(decision) = self.peek_rule(facts, rule, cost, queue).await
        {
            return decision;
        }
        self.apply(Asking { only: rule, queue, ..Asking::all(Op::Peek) }, facts, cost).await
    }

    /// Charges a cost that is known only afterwards, into debt if need be.
    pub async fn force(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.apply(Asking { only: rule, ..Asking::all(Op::Force) }, facts, cost).await
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
        let refund = Asking::all(Op::Refund { charged_at });
        self.apply(Asking { only: rule, ..refund }, facts, cost).await
    }

    /// Gives back what a decision charged, once: the decision is its own receipt. What a local share
    /// admitted is given back there; once that is written to the store it stays charged.
    pub async fn give_back(&self, mut decision: Decision) {
        self.hand_in(&decision.take_receipt(|_| true).under(&self.rules())).await;
    }

    /// Which rules govern a request, whose counters they are, how those stand, and what decides.
    pub async fn explain(&self, facts: &Facts<'_>, cost: u32) -> Explanation {
        let rules = self.rules();
        let mut completed = facts.borrowed();
        rules.complete(&mut completed);
        let decision =
            self.apply_under(Arc::clone(&rules), Asking::all(Op::Peek), facts, times(cost));
        Explanation::new(decision.await, &completed, cost)
    }

    /// Puts a rule set into force. Counters of rules that keep their id, algorithm and window are
    /// kept, and what was used stays used.
    ///
    /// # Errors
    /// When neither the store's clock nor a local one can be read; the rules in force stay.
    pub async fn install(&self, rules: RuleSet) -> Result<(), StoreError> {
        let now = self.now().await?;
        let rules = Arc::new(rules.following(&self.rules.load(), now));
        self.rules.store(Arc::clone(&rules));
        self.observers.iter().for_each(|observer| observer.installed(&rules));
        if let Some(local) = &self.local {
            local.install(&rules, self.store.nodes()).await;
        }
        Ok(())
    }

    /// Has the local shares follow the number of nodes. Decisions on shares do so themselves; a task
    /// that also calls this every now and then has new shares drain from when the number changed.
    pub async fn follow_nodes(&self) {
        if let Some(local) = &self.local {
            local.share_among(self.store.nodes()).await;
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
    pub(crate) async fn own_now(&self) -> Timestamp {
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
        asking: Asking<'_>,
        facts: &Facts<'_>,
        cost: u32,
    ) -> impl Future<Output = Decision> {
        self.apply_under(self.rules(), asking, facts, times(cost))
    }

    /// The one future that every decision is. What calls it gives it on instead of waiting for it, because a
    /// future inside another is copied when it is made and what it answers when it is done, and both are large.
    pub(crate) async fn apply_under(
        &self,
        rules: Arc<RuleSet>,
        asking: Asking<'_>,
        facts: &Facts<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let started = self.start(asking.op);
        let decided = {
            if rules.carries() {
                Box::pin(self.carry_over(&rules, facts)).await;
            }
            let mut plan = Plan::empty();
            plan.fill(&rules, facts, asking, cost);
            let op = match asking.op {
                Op::Charge if plan.refused => Op::Peek,
                op => op,
            };
            // Pinned where it is made: what is awaited is moved first, with all the room it has.
            pin!(self.ask(op, &mut plan, &rules)).await;
            self.stop(started);
            if asking.op == Op::Charge {
                self.tell_observer(&plan, &rules, facts);
            }
            let Plan { readings, answered_by, paid, open_ended, local_at, store_time, .. } = plan;
            (readings, answered_by, paid, open_ended, local_at, store_time)
        };
        let (readings, answered_by, paid, open_ended, local_at, store_time) = decided;
        Decision { rules, readings, answered_by, paid, open_ended, local_at, store_time }
    }

    /// Tells whoever hears of decisions.
    #[inline]
    pub(crate) fn tell_observer(&self, plan: &Plan<'_>, rules: &Arc<RuleSet>, facts: &Facts<'_>) {
        if !self.observers.is_empty() {
            let decided = Decided::new(plan, rules, facts);
            self.observers.iter().for_each(|observer| observer.decided(&decided));
        }
    }

    /// Tells whoever hears of decisions of a bucket that no rule names.
    #[inline]
    pub(crate) fn tell_of_ad_hoc(&self, door: Door, by: AnsweredBy, verdict: Verdict) {
        self.observers.iter().for_each(|observer| observer.charged_ad_hoc(door, by, verdict));
    }

    /// Says that a decision begins; when, if it is one that is timed.
    #[inline]
    pub(crate) fn start(&self, op: Op) -> Option<Timestamp> {
        self.stopwatch.as_ref().filter(|_| op == Op::Charge)?.started()
    }

    /// Says that a decision is made.
    #[inline]
    pub(crate) fn stop(&self, started: Option<Timestamp>) {
        if let (Some(stopwatch), Some(started)) = (&self.stopwatch, started) {
            stopwatch.stopped(started);
        }
    }

    /// Whether somebody hears of decisions.
    pub(crate) const fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Asks the store, or where it does not answer the rules' `on_fail`, and fills in the numbers.
    ///
    /// What is rare or waits for a network anyway is boxed: its state is large, and would be carried
    /// about with every decision.
    pub(crate) async fn ask(&self, op: Op, plan: &mut Plan<'_>, rules: &Arc<RuleSet>) {
        if plan.charges.is_empty() {
            return;
        }
        let (mut few, mut many) = ([Reading::default(); FEW], Vec::new());
        let numbers = match few.get_mut(..plan.charges.len()) {
            Some(few) => few,
            None => {
                many.resize(plan.charges.len(), Reading::default());
                many.as_mut_slice()
            }
        };
        let asked_at = self.store_clock.as_ref().map(StoreClock::now);
        let answered = match &self.local {
            Some(local) if local.debts.any() => {
                Box::pin(self.apply_where_settled(local, op, plan, rules, numbers)).await
            }
            _ => self.store.apply(op, &plan.charges, numbers).await,
        };
        if let (Some(clock), Some(asked_at)) = (&self.store_clock, asked_at) {
            plan.store_time = Some(clock.now().since(asked_at));
        }
        match answered {
            Ok(AnsweredBy::Store) => {
                if let Some(local) = &self.local
                    && has_local(plan, rules)
                {
                    self.follow_nodes().await;
                    Box::pin(local.keep_warm(op, plan, rules, numbers)).await;
                }
                plan.tell_all(op, numbers, |_| Some(Counter::Store));
            }
            // A remembered refusal changed nothing and did not ask for the others' counters.
            Ok(by) => {
                plan.answered_by = by;
                let told = numbers.iter().enumerate();
                told.filter(|(_, told)| told.verdict.refuses())
                    .for_each(|(i, told)| plan.tell(i, *told));
            }
            Err(error) => Box::pin(self.fall_back(op, plan, rules, numbers, &error)).await,
        }
    }
}

/// So many times what a rule says that a request costs.
pub(crate) fn times(count: impl Into<u64>) -> impl Fn(&Rule) -> u64 {
    let count = count.into();
    move |rule| rule.cost().base().saturating_mul(count)
}

/// What a request costs to a rule that leaves it to the request; other rules know.
pub(crate) fn told_by(told: impl Fn(&Rule) -> u64) -> impl Fn(&Rule) -> u64 {
    move |rule| match rule.cost() {
        cost if cost.is_told_by_request() => told(rule).max(1),
        cost => cost.base(),
    }
}

/// Whether a rule of the plan is decided on a local share while the store is gone.
fn has_local(plan: &Plan<'_>, rules: &RuleSet) -> bool {
    (0..plan.charges.len()).any(|i| plan.on_fail(i, rules) == OnFail::Local)
}
