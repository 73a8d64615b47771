//! Several questions that are one call: all of them are charged, or none.
//!
//! A counter that more than one of them touches is charged once, with the sum of their costs: no two charges
//! of a batch have the same key. Whoever asks here cannot hold a request, so a rule that queues refuses
//! what would have to wait, uncharged. (While the store is gone a local share polices such a queue.)

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

/// The place of a rule that is in no rule set: the limit was brought.
const INLINE_LIMIT_RULE: u32 = u32::MAX;

/// One question of a call.
#[derive(Clone, Copy, Debug)]
pub struct DecisionQuery<'q, 'f> {
    /// What is known of the request.
    pub facts: &'q Facts<'f>,
    /// What is to be done.
    pub action: QueryAction,
    /// The limit that the caller brings, in place of all rules.
    pub inline_limit: Option<InlineLimit>,
}

/// What a question asks for; costs multiply what a rule says that a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryAction {
    /// Charge so much. Nothing at all is a look: it passes unless the counter is in debt.
    Charge(u64),
    /// Give so much back, if no other question of the call is refused.
    Refund(u64),
}

/// How limits that are brought are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InlineLimitMode {
    /// By the facts, and what is refused is not charged.
    ByFacts,
    /// As Envoy's reference server does.
    EnvoyReference,
}

/// The store did not answer for a limit that the caller brought, and no rule says what then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUnavailableError;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Decides the questions of a call under one rule set, at one instant, and charges all of them or none:
    /// one decision for each, in order. Where the store cannot answer, each rule's `on_fail` does.
    ///
    /// # Errors
    /// When the store did not answer for a limit that was brought. Nothing stays charged, as far as that
    /// is known.
    pub async fn decide_batch(
        &self,
        questions: &[DecisionQuery<'_, '_>],
    ) -> Result<Vec<Decision>, StoreUnavailableError> {
        let rules = self.rules();
        let replaced = replaced_rules(&rules, questions);
        self.decide_queries(rules, questions, &replaced, InlineLimitMode::ByFacts).await
    }

    /// Decides the questions of a call under one rule set, yet each by itself: what one of them is refused
    /// by, the others are charged for all the same. Limits that are brought are counted as Envoy's reference
    /// server counts them. The caller waits for the answers, all at once where the store is
    /// elsewhere; each has one decision.
    pub fn decide_separately(
        &self,
        questions: &[DecisionQuery<'_, '_>],
    ) -> Vec<impl Future<Output = Result<Vec<Decision>, StoreUnavailableError>> + Send> {
        let rules = self.rules();
        let replaced = replaced_rules(&rules, questions);
        let one = |question| {
            let (rules, replaced) = (Arc::clone(&rules), replaced.clone());
            async move {
                let question = slice::from_ref(question);
                self.decide_queries(rules, question, &replaced, InlineLimitMode::EnvoyReference)
                    .await
            }
        };
        questions.iter().map(one).collect()
    }

    async fn decide_queries(
        &self,
        rules: Arc<RuleSet>,
        questions: &[DecisionQuery<'_, '_>],
        replaced: &[u32],
        limits: InlineLimitMode,
    ) -> Result<Vec<Decision>, StoreUnavailableError> {
        let started = self.start_timer(Op::Charge);
        if rules.has_predecessors() {
            for question in questions {
                Box::pin(self.migrate_usage(&rules, question.facts)).await;
            }
        }
        let sets: SmallVec<[Arc<RuleSet>; 1]> =
            questions.iter().map(|question| question.rule_set(&rules, limits)).collect();
        let (decisions, unanswered) = {
            let mut parts: SmallVec<[PlannedQuery<'_>; 1]> = questions
                .iter()
                .zip(&sets)
                .map(|(question, set)| question.plan(set, replaced))
                .collect();
            // Most calls are one plain question. The state of all else is large, and boxed.
            match &mut parts[..] {
                [part] if part.is_single_charge() => {
                    self.apply_plan(batch_op(slice::from_ref(part)), &mut part.plan, &rules).await;
                }
                parts => Box::pin(self.apply_batch(parts, &rules)).await,
            }
            self.stop_timer(started);
            let unanswered = parts.iter().any(PlannedQuery::is_store_unavailable);
            if self.has_observers() && !unanswered {
                self.notify_batch(questions, &parts, &sets);
            }
            let plans = parts.into_iter().map(|part| part.plan);
            let told = plans.zip(&sets).map(|(plan, set)| plan.into_decision(Arc::clone(set)));
            (told.collect::<Vec<_>>(), unanswered)
        };
        if unanswered {
            Box::pin(self.refund_decisions(decisions)).await;
            return Err(StoreUnavailableError);
        }
        Ok(decisions)
    }

    /// Tells whoever hears of decisions of those that charge by rules.
    fn notify_batch(
        &self,
        questions: &[DecisionQuery<'_, '_>],
        parts: &[PlannedQuery<'_>],
        sets: &[Arc<RuleSet>],
    ) {
        for ((question, part), rules) in questions.iter().zip(parts).zip(sets) {
            if part.has_inline_limit || !matches!(part.action, QueryAction::Charge(1..)) {
                continue;
            }
            self.notify_observers(&part.plan, rules, question.facts);
        }
    }

    /// Gives back what the decisions of a call charged, once.
    pub async fn refund_decisions(&self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.refund_decision(decision).await;
        }
    }

    /// Charges what is to be charged, then gives back what is to be given back.
    async fn apply_batch(&self, parts: &mut [PlannedQuery<'_>], rules: &Arc<RuleSet>) {
        let merged = MergedBatch::from_queries(parts, QueryKind::Charge);
        let mut whole = merged.plan();
        self.apply_plan(batch_op(parts), &mut whole, rules).await;
        merged.copy_results_to(&whole, parts, QueryKind::Charge);
        if parts.iter().any(|part| part.kind() == QueryKind::Refund) {
            self.refund_batch(parts, rules).await;
        }
    }

    /// Gives back what is to be given back; nothing in a call that is refused.
    async fn refund_batch(&self, parts: &mut [PlannedQuery<'_>], rules: &Arc<RuleSet>) {
        let refuses =
            |part: &PlannedQuery<'_>| part.plan.readings.iter().any(|told| told.verdict.refuses());
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
        let brought = self.inline_limit.and_then(|limit| match limits {
            InlineLimitMode::ByFacts => Some(rules.with_inline_limit(limit, self.facts)),
            InlineLimitMode::EnvoyReference => rules.with_inline_limit_as_envoy(limit, self.facts),
        });
        brought.map_or_else(|| Arc::clone(rules), Arc::new)
    }

    fn plan<'a>(&self, rules: &'a Arc<RuleSet>, replaced: &[u32]) -> PlannedQuery<'a> {
        let (QueryAction::Charge(cost) | QueryAction::Refund(cost)) = self.action;
        // A limit that is brought is no rule's, and nothing replaces it.
        let without = if rules.is_inline_limit() { &[] } else { replaced };
        let asking = PlanOptions {
            queue: QueueMode::Refuse,
            excluded_rules: without,
            ..PlanOptions::all_rules(Op::Charge)
        };
        let (asked, brought) = (self.action, rules.is_inline_limit());
        let mut part =
            PlannedQuery { action: asked, has_inline_limit: brought, plan: ChargePlan::empty() };
        part.plan.fill(rules, self.facts, asking, multiply_base_cost(cost));
        part
    }
}

/// The rules that those of any question of a call replace. Boxed: mostly there are none, and they are carried
/// about with every decision.
fn replaced_rules(rules: &RuleSet, questions: &[DecisionQuery<'_, '_>]) -> Box<[u32]> {
    let asking = questions.iter().filter(|question| question.inline_limit.is_none());
    rules.replaced_rules(asking.map(|question| question.facts)).into_vec().into()
}

/// What to do for those of the questions that charge: nothing if one of them is refused already, or if
/// all of them only look.
fn batch_op(parts: &[PlannedQuery<'_>]) -> Op {
    let mut asking = parts.iter().filter(|part| part.kind() == QueryKind::Charge);
    let refused = asking.clone().any(|part| part.plan.refused);
    let charges = asking.any(|part| part.action != QueryAction::Charge(0));
    if charges && !refused { Op::Charge } else { Op::Peek }
}

/// What kind of question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryKind {
    /// It charges, be it nothing.
    Charge,
    Refund,
}

/// One question, planned.
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

    /// Whether its plan can be asked as it is.
    fn is_single_charge(&self) -> bool {
        self.kind() == QueryKind::Charge && !self.has_inline_limit
    }

    /// Whether the store was to be asked about a limit that no rule stands for, and did not answer.
    fn is_store_unavailable(&self) -> bool {
        self.has_inline_limit && self.plan.readings.first().is_some_and(|reading| reading.uncounted)
    }
}

/// The charges of several questions as one batch, each counter once.
struct MergedBatch<'a> {
    /// With the place of its rule.
    charges: SmallVec<[(Charge<'a>, u32); 4]>,
    /// Where in it the charges of the questions are, question by question.
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
        // Limits that are brought for one counter may differ: the strictest holds for all.
        if charge.policy.limit() < known.policy.limit() {
            known.policy = charge.policy;
        }
        // Callers cap how many questions there are.
        self.indices.push(u32::try_from(at).unwrap_or(u32::MAX));
    }

    fn plan(&self) -> ChargePlan<'a> {
        ChargePlan::from_charges(self.charges.iter().copied())
    }

    /// Tells each question what was said to its charges.
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
