//! The limiter: decides requests under one rule set at a time, with the counters in one store.

use std::pin::pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::store::{Op, QueueMode, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::{ApiKind, Facts, OnFail, Rule, RuleSet};

use crate::decision::{CounterLocation, Decision};
use crate::explain::Explanation;
use crate::lease::lease_ttl;
use crate::local_fallback::{LocalFallback, NoFallback};
use crate::node_counters::NodeCounters;
use crate::observer::{DecisionEvent, DecisionObserver, DecisionTimer, StoreClock};
use crate::plan::{ChargePlan, INLINE_CHARGES, PlanOptions};
use crate::split::{PartPicker, has_split_charge};

/// Decides requests. Share it by reference or in an `Arc`; the rules can be replaced while it runs.
#[derive(Debug)]
pub struct Limiter<S, L = NoFallback> {
    pub(crate) store: S,
    pub(crate) local: Option<LocalFallback<L>>,
    pub(crate) node_counters: Option<NodeCounters>,
    rules: ArcSwap<RuleSet>,
    observers: Vec<Arc<dyn DecisionObserver>>,
    timer: Option<Arc<dyn DecisionTimer>>,
    store_clock: Option<StoreClock>,
    pub(crate) part_picker: PartPicker,
}

impl<S: Store> Limiter<S> {
    /// Creates a limiter that keeps its counters in `store`.
    #[must_use]
    pub fn new(store: S, rules: RuleSet) -> Self {
        let rules = ArcSwap::from_pointee(rules);
        Self {
            store,
            local: None,
            node_counters: None,
            rules,
            observers: Vec::new(),
            timer: None,
            store_clock: None,
            part_picker: PartPicker::default(),
        }
    }

    /// Adds an in-process store that decides rules with `on_fail: local` while the main store is
    /// unreachable. Each node then enforces an even share of the limit, rounded down but at least
    /// one request. [`settle`](Limiter::settle) writes what it admitted to the store once the store
    /// answers again.
    ///
    /// Upper bounds on what is admitted over an interval `T`, for a bucket with limit `B` and rate
    /// `r` whose shares sum to `S` (at most `B`, unless there are more nodes than requests):
    /// - at most `B + S + 2rT`, whatever fails and however often. For any algorithm the bound is at
    ///   most doubled, because the store and the shares are two independent limiters;
    /// - at most `B + kS + rT` if the store was unreachable for all nodes `k` times. Unsettled
    ///   usage adds `S`, a settlement delayed by `δ` adds `rδ`, and a node that alone is cut off
    ///   adds its share of the rate while it is cut off;
    /// - at most `B + rT` on a single node, plus the requests in flight: its local bucket has
    ///   counted everything, and decides until the store has counted it too.
    ///
    /// A concurrency limit of `B` holds at most `B + S` slots. Slots taken on a share move to the
    /// store when they are renewed; they are not settled.
    #[must_use]
    pub fn with_local<L: Store>(self, local: L) -> Limiter<S, L> {
        let local = LocalFallback::new(local, self.rules(), self.store.node_count());
        Limiter {
            store: self.store,
            local: Some(local),
            node_counters: self.node_counters,
            rules: self.rules,
            observers: self.observers,
            timer: self.timer,
            store_clock: self.store_clock,
            part_picker: self.part_picker,
        }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Adds an observer that is called for every decision.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn DecisionObserver>) -> Self {
        observer.on_rules_installed(&self.rules.load());
        self.observers.push(observer);
        self
    }

    /// Times decisions with `timer`.
    #[must_use]
    pub fn with_timer(mut self, timer: Arc<dyn DecisionTimer>) -> Self {
        self.timer = Some(timer);
        self
    }

    /// Measures each store call with `clock`, for [`Decision::store_time`].
    #[must_use]
    pub fn with_store_clock(mut self, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.store_clock = Some(StoreClock::new(clock));
        self
    }

    /// Decides a request and charges all matching rules, or none. It always returns a decision: if
    /// the store does not answer, each rule's `on_fail` applies.
    ///
    /// `cost` multiplies the rule's configured cost. For a rule that takes its cost from the
    /// request, `cost` is the cost.
    pub fn decide(&self, facts: &Facts<'_>, cost: u32) -> impl Future<Output = Decision> {
        self.apply(PlanOptions::all_rules(Op::Charge), facts, cost)
    }

    /// Decides a request under a rule set from [`rules`](Self::rules) that the caller already used
    /// to extract the facts, so that the request sees a single rule set. `request_cost` returns the
    /// cost for rules that take it from the request ([`CostSource::is_from_request`]), and is
    /// raised to 1 if lower; other rules have a configured cost.
    ///
    /// [`CostSource::is_from_request`]: tidegate_rules::CostSource::is_from_request
    pub fn decide_with_rules(
        &self,
        rules: Arc<RuleSet>,
        facts: &Facts<'_>,
        request_cost: impl Fn(&Rule) -> u64,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(
            rules,
            PlanOptions::all_rules(Op::Charge),
            facts,
            cost_from_request(request_cost),
        )
    }

    /// What [`decide`](Self::decide) would return, without charging. If `rule` names a rule, only
    /// the facts of its key are needed, and its match conditions are ignored.
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

    /// Charges a cost that becomes known only after the request, into debt if necessary.
    pub async fn force(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.apply(
            PlanOptions { only_rule: rule, ..PlanOptions::all_rules(Op::Force) },
            facts,
            cost,
        )
        .await
    }

    /// Refunds a charge made at `charged_at`, the time that the decision reported; `None` means
    /// now, or so long ago as units of a leased rule may have been granted.
    pub async fn refund(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
        charged_at: Option<Timestamp>,
    ) -> Decision {
        let charged_at = match charged_at {
            Some(at) => at,
            None => {
                let longest = self.rules().rules().iter().filter_map(lease_ttl).max();
                self.now().await.unwrap_or_default().minus(longest.unwrap_or_default())
            }
        };
        let refund = PlanOptions::all_rules(Op::Refund { charged_at });
        self.apply(PlanOptions { only_rule: rule, ..refund }, facts, cost).await
    }

    /// Refunds everything that a decision charged. Consuming the decision ensures that this happens
    /// once. A charge on a local share is refunded there; once it is settled to the store it stays.
    pub async fn refund_decision(&self, mut decision: Decision) {
        self.refund_receipt(&decision.take_receipt(|_| true).for_rules(&self.rules())).await;
    }

    /// Explains which rules match a request, which counters they use, their state, and which rule
    /// decides.
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
        let units = |rule: &Rule| self.units_held(&rules, rule, &completed);
        let nodes = self.store.node_count();
        let lenders = self.borrow_stats().map(|stats| stats.lenders).unwrap_or_default();
        Explanation::new(decision.await, &completed, cost, nodes, units, &lenders)
    }

    /// Activates a rule set. A rule that keeps its id, algorithm and window keeps its counters, so
    /// usage is preserved.
    ///
    /// # Errors
    /// If neither the store's clock nor the local one can be read; the active rules stay.
    pub async fn install(&self, rules: RuleSet) -> Result<(), StoreError> {
        let now = self.now().await?;
        let rules = Arc::new(rules.inherit_from(&self.rules.load(), now));
        self.rules.store(Arc::clone(&rules));
        if let Some(counters) = &self.node_counters {
            counters.install(&rules);
        }
        self.observers.iter().for_each(|observer| observer.on_rules_installed(&rules));
        if let Some(local) = &self.local {
            local.install(&rules, self.store.node_count()).await;
        }
        Ok(())
    }

    /// Adapts the local shares to the number of nodes. Decisions on shares do this too; calling it
    /// periodically makes new shares drain from the time at which the number changed.
    pub async fn sync_node_count(&self) {
        if let Some(local) = &self.local {
            local.divide_among(self.store.node_count()).await;
        }
    }

    /// The active rules.
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

    /// The time for use right after the store failed: the local store's, because querying the main
    /// store again could mean another timeout. Without a local store there is no other clock.
    pub(crate) async fn local_now(&self) -> Timestamp {
        let now = match &self.local {
            Some(local) => local.store.now().await,
            None => self.store.now().await,
        };
        now.unwrap_or_default()
    }

    /// The store's time, or the local store's wall-clock time while the store is unreachable.
    ///
    /// # Errors
    /// If neither can be read.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        match (self.store.now().await, &self.local) {
            (Err(_), Some(local)) => local.store.now().await,
            (result, _) => result,
        }
    }

    pub(crate) fn apply(
        &self,
        options: PlanOptions<'_>,
        facts: &Facts<'_>,
        cost: u32,
    ) -> impl Future<Output = Decision> {
        self.apply_with_rules(self.rules(), options, facts, multiply_base_cost(cost))
    }

    /// The future behind every decision. Callers return this future instead of awaiting it in their
    /// own: a nested future is copied when it is created and its output is copied when it
    /// completes, and both are large.
    pub(crate) async fn apply_with_rules(
        &self,
        rules: Arc<RuleSet>,
        options: PlanOptions<'_>,
        facts: &Facts<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) -> Decision {
        let started = self.start_timer(options.op);
        let outcome = {
            if rules.has_predecessors() {
                Box::pin(self.migrate_usage(&rules, facts)).await;
            }
            let mut plan = ChargePlan::empty();
            plan.fill(&rules, facts, options, cost);
            let op = match options.op {
                Op::Charge if plan.refused => Op::Peek,
                op => op,
            };
            // Pinned in place: `.await` would first move the future, which is large.
            pin!(self.apply_plan(op, &mut plan, &rules)).await;
            self.stop_timer(started);
            if options.op == Op::Charge {
                self.notify_observers(&plan, &rules, facts, started);
            }
            let ChargePlan {
                readings,
                answered_by,
                charge_records,
                open_ended,
                local_charged_at,
                store_time,
                ..
            } = plan;
            (readings, answered_by, charge_records, open_ended, local_charged_at, store_time)
        };
        let (readings, answered_by, charge_records, open_ended, local_charged_at, store_time) =
            outcome;
        Decision {
            rules,
            readings,
            answered_by,
            charge_records,
            open_ended,
            local_charged_at,
            store_time,
        }
    }

    /// Notifies the observers of a decision.
    #[inline]
    pub(crate) fn notify_observers(
        &self,
        plan: &ChargePlan<'_>,
        rules: &Arc<RuleSet>,
        facts: &Facts<'_>,
        started: Option<Timestamp>,
    ) {
        if !self.observers.is_empty() {
            let event = DecisionEvent::new(plan, rules, facts, started);
            self.observers.iter().for_each(|observer| observer.on_decision(&event));
        }
    }

    /// Notifies the observers of a charge on an ad-hoc bucket.
    #[inline]
    pub(crate) fn notify_ad_hoc_charge(&self, api: ApiKind, by: AnsweredBy, verdict: Verdict) {
        self.observers.iter().for_each(|observer| observer.on_ad_hoc_charge(api, by, verdict));
    }

    /// Starts timing a charging decision. Returns the start time if the timer samples this one.
    #[inline]
    pub(crate) fn start_timer(&self, op: Op) -> Option<Timestamp> {
        self.timer.as_ref().filter(|_| op == Op::Charge)?.start()
    }

    /// Stops timing a decision.
    #[inline]
    pub(crate) fn stop_timer(&self, started: Option<Timestamp>) {
        if let (Some(timer), Some(started)) = (&self.timer, started) {
            timer.stop(started);
        }
    }

    /// Whether any observer is registered.
    pub(crate) const fn has_observers(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Applies the plan to the store, or to the rules' `on_fail` if the store does not answer, and
    /// fills in the readings.
    ///
    /// Futures that are rare or that wait for the network anyway are boxed. Their state is large
    /// and would otherwise be part of every decision's future.
    pub(crate) async fn apply_plan(&self, op: Op, plan: &mut ChargePlan<'_>, rules: &Arc<RuleSet>) {
        if plan.charges.is_empty() {
            return;
        }
        if has_split_charge(plan, rules) {
            return Box::pin(self.apply_to_parts(op, plan, rules)).await;
        }
        if let Some(counters) = &self.node_counters
            && plan.charges.iter().any(|charge| charge.lent)
        {
            match op {
                Op::Charge => {
                    if let Some(states) = self.take_units(counters, plan, rules) {
                        Box::pin(self.complete_with_store(counters, plan, rules, states)).await;
                    }
                    return;
                }
                Op::Reset => {
                    plan.charges.iter().for_each(|charge| counters.forget(charge.key.fingerprint));
                }
                _ => {}
            }
        }
        self.apply_to_store(op, plan, rules).await;
    }

    /// Applies the plan to the store, without regard to leases and parts.
    pub(crate) async fn apply_to_store(
        &self,
        op: Op,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
    ) {
        let (mut few, mut many) = ([Reading::default(); INLINE_CHARGES], Vec::new());
        let numbers = match few.get_mut(..plan.charges.len()) {
            Some(few) => few,
            None => {
                many.resize(plan.charges.len(), Reading::default());
                many.as_mut_slice()
            }
        };
        let sent_at = self.store_clock.as_ref().map(StoreClock::now);
        let answered = match &self.local {
            Some(local) if local.unsettled.has_any() => {
                Box::pin(self.apply_to_settled(local, op, plan, rules, numbers)).await
            }
            _ => self.store.apply(op, &plan.charges, numbers).await,
        };
        if let (Some(clock), Some(sent_at)) = (&self.store_clock, sent_at) {
            plan.store_time = Some(clock.now().since(sent_at));
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
            // The deny cache changed nothing and did not read the other counters.
            Ok(by) => {
                plan.answered_by = by;
                let indexed = numbers.iter().enumerate();
                indexed
                    .filter(|(_, reading)| reading.verdict.refuses())
                    .for_each(|(i, reading)| plan.set_reading(i, *reading));
            }
            Err(error) => Box::pin(self.fall_back(op, plan, rules, numbers, &error)).await,
        }
    }
}

/// The rule's configured cost, times `count`.
pub(crate) fn multiply_base_cost(count: impl Into<u64>) -> impl Fn(&Rule) -> u64 {
    let count = count.into();
    move |rule| rule.cost().base().saturating_mul(count)
}

/// The cost that `request_cost` returns if the rule takes it from the request, else the configured
/// cost.
pub(crate) fn cost_from_request(request_cost: impl Fn(&Rule) -> u64) -> impl Fn(&Rule) -> u64 {
    move |rule| match rule.cost() {
        cost if cost.is_from_request() => request_cost(rule).max(1),
        cost => cost.base(),
    }
}

/// Whether the plan has a rule that a local share decides while the store is unreachable.
pub(crate) fn has_local_rule(plan: &ChargePlan<'_>, rules: &RuleSet) -> bool {
    (0..plan.charges.len()).any(|i| plan.on_fail(i, rules) == OnFail::Local)
}
