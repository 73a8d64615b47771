//! Decides several queries in one call and charges all of them, or none.
//!
//! If several queries use the same counter, it is charged once, with the sum of their costs: a
//! batch never contains the same key twice. Callers of this API cannot delay a request, so a
//! queueing rule refuses a request that would have to wait, and does not charge it. (While the
//! store is unreachable, the local share refuses instead of queueing.)

use std::fmt;
use std::future::Future;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::store::{Charge, Op, QueueMode, Store};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Facts, InlineLimit, RuleSet};

use crate::decision::Decision;
use crate::limiter::{Limiter, multiply_base_cost};
use crate::plan::{ChargePlan, PlanOptions};

/// Rule index of an inline limit, which belongs to no rule set.
const INLINE_LIMIT_RULE: u32 = u32::MAX;

/// One query of a batch.
#[derive(Clone, Copy, Debug)]
pub struct DecisionQuery<'q, 'f> {
    /// The facts of the request.
    pub facts: &'q Facts<'f>,
    /// Whether to charge or refund.
    pub action: QueryAction,
    /// A limit supplied by the caller, applied in place of all rules.
    pub inline_limit: Option<InlineLimit>,
}

/// The operation of a query. The amount multiplies a rule's configured cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryAction {
    /// Charge this amount. A charge of 0 changes nothing and is allowed unless the counter is in
    /// debt.
    Charge(u64),
    /// Refund this amount, unless a charge in the same batch is refused.
    Refund(u64),
}

/// How inline limits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InlineLimitMode {
    /// One counter per set of facts; a refused request is not charged.
    ByFacts,
    /// Like Envoy's reference rate limit service.
    EnvoyReference,
}

/// The store did not answer for an inline limit, which has no `on_fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUnavailableError;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Decides all queries under one rule set and at one instant, and charges all of them or none.
    /// Returns one decision per query, in order. If the store does not answer, each rule's
    /// `on_fail` applies.
    ///
    /// # Errors
    /// If the store did not answer for an inline limit. The charges that are known to have been
    /// made are refunded.
    pub async fn decide_batch(
        &self,
        queries: &[DecisionQuery<'_, '_>],
    ) -> Result<Vec<Decision>, StoreUnavailableError> {
        let rules = self.rules();
        let replaced = replaced_rules(&rules, queries);
        self.decide_queries(rules, queries, &replaced, InlineLimitMode::ByFacts).await
    }

    /// Decides each query independently, under one rule set: if one is refused, the others are
    /// still charged. Inline limits are counted like Envoy's reference rate limit service counts
    /// them.
    ///
    /// Returns one future per query, each with one decision. With a remote store, the caller should
    /// poll them concurrently.
    pub fn decide_separately(
        &self,
        queries: &[DecisionQuery<'_, '_>],
    ) -> Vec<impl Future<Output = Result<Vec<Decision>, StoreUnavailableError>> + Send> {
        let rules = self.rules();
        let replaced = replaced_rules(&rules, queries);
        let one = |query| {
            let (rules, replaced) = (Arc::clone(&rules), replaced.clone());
            async move {
                let query = slice::from_ref(query);
                self.decide_queries(rules, query, &replaced, InlineLimitMode::EnvoyReference).await
            }
        };
        queries.iter().map(one).collect()
    }

    async fn decide_queries(
        &self,
        rules: Arc<RuleSet>,
        queries: &[DecisionQuery<'_, '_>],
        replaced: &[u32],
        limits: InlineLimitMode,
    ) -> Result<Vec<Decision>, StoreUnavailableError> {
        let started = self.start_timer(Op::Charge);
        if rules.has_predecessors() {
            for query in queries {
                Box::pin(self.migrate_usage(&rules, query.facts)).await;
            }
        }
        let sets: SmallVec<[Arc<RuleSet>; 1]> =
            queries.iter().map(|query| query.rule_set(&rules, limits)).collect();
        let (decisions, unanswered) = {
            let mut parts: SmallVec<[PlannedQuery<'_>; 1]> =
                queries.iter().zip(&sets).map(|(query, set)| query.plan(set, replaced)).collect();
            // Most batches are a single plain query. The future for all others is large, so it is
            // boxed.
            match &mut parts[..] {
                [part] if part.is_single_charge() => {
                    self.apply_plan(batch_op(slice::from_ref(part)), &mut part.plan, &rules).await;
                }
                parts => Box::pin(self.apply_batch(parts, &rules)).await,
            }
            self.stop_timer(started);
            let unanswered = parts.iter().any(PlannedQuery::is_store_unavailable);
            if self.has_observers() && !unanswered {
                self.notify_batch(queries, &parts, &sets, started);
            }
            let plans = parts.into_iter().map(|part| part.plan);
            let decisions = plans.zip(&sets).map(|(plan, set)| plan.into_decision(Arc::clone(set)));
            (decisions.collect::<Vec<_>>(), unanswered)
        };
        if unanswered {
            Box::pin(self.refund_decisions(decisions)).await;
            return Err(StoreUnavailableError);
        }
        Ok(decisions)
    }

    /// Notifies the observers of every query that charges a rule.
    fn notify_batch(
        &self,
        queries: &[DecisionQuery<'_, '_>],
        parts: &[PlannedQuery<'_>],
        sets: &[Arc<RuleSet>],
        started: Option<Timestamp>,
    ) {
        for ((query, part), rules) in queries.iter().zip(parts).zip(sets) {
            if part.has_inline_limit || !matches!(part.action, QueryAction::Charge(1..)) {
                continue;
            }
            self.notify_observers(&part.plan, rules, query.facts, started);
        }
    }

    /// Refunds everything that the decisions of a batch charged.
    pub async fn refund_decisions(&self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.refund_decision(decision).await;
        }
    }

    /// Applies the charges of the batch, then its refunds.
    async fn apply_batch(&self, parts: &mut [PlannedQuery<'_>], rules: &Arc<RuleSet>) {
        let merged = MergedBatch::from_queries(parts, QueryKind::Charge);
        let mut whole = merged.plan();
        whole.refused = parts.iter().any(|part| part.plan.refused);
        self.apply_plan(batch_op(parts), &mut whole, rules).await;
        merged.copy_results_to(&whole, parts, QueryKind::Charge);
        if parts.iter().any(|part| part.kind() == QueryKind::Refund) {
            self.refund_batch(parts, rules).await;
        }
    }

    /// Applies the refunds of the batch; none if a charge was refused.
    async fn refund_batch(&self, parts: &mut [PlannedQuery<'_>], rules: &Arc<RuleSet>) {
        let refuses = |part: &PlannedQuery<'_>| {
            part.plan.readings.iter().any(|reading| reading.verdict.refuses())
        };
        let refused = parts.iter().any(|part| part.kind() == QueryKind::Charge && refuses(part));
        let mut merged = MergedBatch::from_queries(parts, QueryKind::Refund);
        if refused {
            merged.charges.iter_mut().for_each(|(charge, _)| charge.cost = 0);
        }
        let charged_at: Timestamp = self.now().await.unwrap_or_default();
        let mut whole = merged.plan();
        self.apply_plan(Op::Refund { charged_at }, &mut whole, rules).await;
        merged.copy_results_to(&whole, parts, QueryKind::Refund);
    }
}

impl DecisionQuery<'_, '_> {
    fn rule_set(&self, rules: &Arc<RuleSet>, limits: InlineLimitMode) -> Arc<RuleSet> {
        let with_limit = self.inline_limit.and_then(|limit| match limits {
            InlineLimitMode::ByFacts => Some(rules.with_inline_limit(limit, self.facts)),
            InlineLimitMode::EnvoyReference => rules.with_inline_limit_as_envoy(limit, self.facts),
        });
        with_limit.map_or_else(|| Arc::clone(rules), Arc::new)
    }

    fn plan<'a>(&self, rules: &'a Arc<RuleSet>, replaced: &[u32]) -> PlannedQuery<'a> {
        let (QueryAction::Charge(cost) | QueryAction::Refund(cost)) = self.action;
        // An inline limit belongs to no rule, so no rule can replace it.
        let excluded_rules = if rules.is_inline_limit() { &[] } else { replaced };
        let options = PlanOptions {
            queue: QueueMode::Refuse,
            excluded_rules,
            ..PlanOptions::all_rules(Op::Charge)
        };
        let (action, has_inline_limit) = (self.action, rules.is_inline_limit());
        let mut part = PlannedQuery { action, has_inline_limit, plan: ChargePlan::empty() };
        part.plan.fill(rules, self.facts, options, multiply_base_cost(cost));
        part
    }
}

/// Indices of the rules replaced by a rule that matches any query of the batch. Boxed because it is
/// usually empty and is part of every decision's future.
fn replaced_rules(rules: &RuleSet, queries: &[DecisionQuery<'_, '_>]) -> Box<[u32]> {
    let by_rules = queries.iter().filter(|query| query.inline_limit.is_none());
    rules.replaced_rules(by_rules.map(|query| query.facts)).into_vec().into()
}

/// The operation for the charging queries: a peek if one of them is already refused or if all of
/// them have a cost of 0.
fn batch_op(parts: &[PlannedQuery<'_>]) -> Op {
    let mut charging = parts.iter().filter(|part| part.kind() == QueryKind::Charge);
    let refused = charging.clone().any(|part| part.plan.refused);
    let charges = charging.any(|part| part.action != QueryAction::Charge(0));
    if charges && !refused { Op::Charge } else { Op::Peek }
}

/// The kind of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryKind {
    /// Charges, possibly with a cost of 0.
    Charge,
    Refund,
}

/// A query with its charge plan.
struct PlannedQuery<'a> {
    action: QueryAction,
    has_inline_limit: bool,
    plan: ChargePlan<'a>,
}

impl PlannedQuery<'_> {
    const fn kind(&self) -> QueryKind {
        match self.action {
            QueryAction::Charge(_) => QueryKind::Charge,
            QueryAction::Refund(_) => QueryKind::Refund,
        }
    }

    /// Whether its plan can be applied without merging.
    fn is_single_charge(&self) -> bool {
        self.kind() == QueryKind::Charge && !self.has_inline_limit
    }

    /// Whether the query has an inline limit for which the store did not answer.
    fn is_store_unavailable(&self) -> bool {
        self.has_inline_limit && self.plan.readings.first().is_some_and(|reading| reading.uncounted)
    }
}

/// The charges of several queries merged into one batch, with each counter once.
struct MergedBatch<'a> {
    /// Each charge with the index of its rule.
    charges: SmallVec<[(Charge<'a>, u32); 4]>,
    /// For each charge of each query, in query order, its index in `charges`.
    indices: SmallVec<[u32; 4]>,
}

impl<'a> MergedBatch<'a> {
    fn from_queries(parts: &[PlannedQuery<'a>], which: QueryKind) -> Self {
        let mut merged = Self { charges: SmallVec::new(), indices: SmallVec::new() };
        for part in parts.iter().filter(|part| part.kind() == which) {
            for (i, charge) in part.plan.charges.iter().enumerate() {
                let rule =
                    if part.has_inline_limit { INLINE_LIMIT_RULE } else { part.plan.rule_index(i) };
                merged.add_charge(*charge, rule);
            }
        }
        merged
    }

    fn add_charge(&mut self, charge: Charge<'a>, rule: u32) {
        let same = |(known, _): &(Charge<'_>, u32)| known.key.fingerprint == charge.key.fingerprint;
        let at = self.charges.iter().position(same).unwrap_or_else(|| {
            self.charges.push((Charge { cost: 0, ..charge }, rule));
            self.charges.len() - 1
        });
        let known = &mut self.charges[at].0;
        known.cost = known.cost.saturating_add(charge.cost);
        // Several inline limits for the same counter may differ: the strictest applies to all.
        if charge.policy.limit() < known.policy.limit() {
            known.policy = charge.policy;
        }
        // Callers cap the number of queries.
        self.indices.push(u32::try_from(at).unwrap_or(u32::MAX));
    }

    fn plan(&self) -> ChargePlan<'a> {
        ChargePlan::from_charges(self.charges.iter().copied())
    }

    /// Copies the results of the merged plan to the plans of the queries.
    fn copy_results_to(
        &self,
        whole: &ChargePlan<'_>,
        parts: &mut [PlannedQuery<'a>],
        which: QueryKind,
    ) {
        let mut at = &self.indices[..];
        for part in parts.iter_mut().filter(|part| part.kind() == which) {
            let (own, rest) = at.split_at(part.plan.charges.len());
            part.plan.adopt_results(whole, own);
            at = rest;
        }
    }
}

impl fmt::Display for StoreUnavailableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store does not answer")
    }
}

impl std::error::Error for StoreUnavailableError {}
