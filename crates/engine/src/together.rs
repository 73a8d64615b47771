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
use tidegate_core::store::{Charge, Op, Queue, Store};
use tidegate_core::time::Timestamp;
use tidegate_rules::{BroughtLimit, Facts, RuleSet};

use crate::decision::Decision;
use crate::limiter::{Limiter, times};
use crate::plan::{Asking, Plan};

/// The place of a rule that is in no rule set: the limit was brought.
const NO_RULE: u32 = u32::MAX;

/// One question of a call.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q, 'f> {
    /// What is known of the request.
    pub facts: &'q Facts<'f>,
    /// What is to be done.
    pub asked: Asked,
    /// The limit that the caller brings, in place of all rules.
    pub limit: Option<BroughtLimit>,
}

/// What a question asks for; costs multiply what a rule says that a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Charge so much. Nothing at all is a look: it passes unless the counter is in debt.
    Charge(u64),
    /// Give so much back, if no other question of the call is refused.
    GiveBack(u64),
}

/// How limits that are brought are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limits {
    /// By the facts, and what is refused is not charged.
    Ours,
    /// As Envoy's reference server does.
    Reference,
}

/// The store did not answer for a limit that the caller brought, and no rule says what then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Decides the questions of a call under one rule set, at one instant, and charges all of them or none:
    /// one decision for each, in order. Where the store cannot answer, each rule's `on_fail` does.
    ///
    /// # Errors
    /// When the store did not answer for a limit that was brought. Nothing stays charged, as far as that
    /// is known.
    pub async fn decide_together(
        &self,
        questions: &[Question<'_, '_>],
    ) -> Result<Vec<Decision>, Unanswered> {
        let rules = self.rules();
        let replaced = replaced(&rules, questions);
        self.decide_one_batch(rules, questions, &replaced, Limits::Ours).await
    }

    /// Decides the questions of a call under one rule set, yet each by itself: what one of them is refused
    /// by, the others are charged for all the same. Limits that are brought are counted as Envoy's reference
    /// server counts them. The caller waits for the answers, all at once where the store is
    /// elsewhere; each has one decision.
    pub fn decide_each(
        &self,
        questions: &[Question<'_, '_>],
    ) -> Vec<impl Future<Output = Result<Vec<Decision>, Unanswered>> + Send> {
        let rules = self.rules();
        let replaced = replaced(&rules, questions);
        let one = |question| {
            let (rules, replaced) = (Arc::clone(&rules), replaced.clone());
            async move {
                let question = slice::from_ref(question);
                self.decide_one_batch(rules, question, &replaced, Limits::Reference).await
            }
        };
        questions.iter().map(one).collect()
    }

    async fn decide_one_batch(
        &self,
        rules: Arc<RuleSet>,
        questions: &[Question<'_, '_>],
        replaced: &[u32],
        limits: Limits,
    ) -> Result<Vec<Decision>, Unanswered> {
        let started = self.start(Op::Charge);
        if rules.carries() {
            for question in questions {
                Box::pin(self.carry_over(&rules, question.facts)).await;
            }
        }
        let sets: SmallVec<[Arc<RuleSet>; 1]> =
            questions.iter().map(|question| question.rules(&rules, limits)).collect();
        let (decisions, unanswered) = {
            let mut parts: SmallVec<[Part<'_>; 1]> = questions
                .iter()
                .zip(&sets)
                .map(|(question, set)| question.plan(set, replaced))
                .collect();
            // Most calls are one plain question. The state of all else is large, and boxed.
            match &mut parts[..] {
                [part] if part.is_plain() => {
                    self.ask(op(slice::from_ref(part)), &mut part.plan, &rules).await;
                }
                parts => Box::pin(self.ask_together(parts, &rules)).await,
            }
            self.stop(started);
            let unanswered = parts.iter().any(Part::is_unanswered);
            if self.is_observed() && !unanswered {
                self.tell_of_all(questions, &parts, &sets);
            }
            let plans = parts.into_iter().map(|part| part.plan);
            let told = plans.zip(&sets).map(|(plan, set)| plan.decision(Arc::clone(set)));
            (told.collect::<Vec<_>>(), unanswered)
        };
        if unanswered {
            Box::pin(self.give_back_all(decisions)).await;
            return Err(Unanswered);
        }
        Ok(decisions)
    }

    /// Tells whoever hears of decisions of those that charge by rules.
    fn tell_of_all(
        &self,
        questions: &[Question<'_, '_>],
        parts: &[Part<'_>],
        sets: &[Arc<RuleSet>],
    ) {
        for ((question, part), rules) in questions.iter().zip(parts).zip(sets) {
            if part.brought || !matches!(part.asked, Asked::Charge(1..)) {
                continue;
            }
            self.tell_observer(&part.plan, rules, question.facts);
        }
    }

    /// Gives back what the decisions of a call charged, once.
    pub async fn give_back_all(&self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.give_back(decision).await;
        }
    }

    /// Charges what is to be charged, then gives back what is to be given back.
    async fn ask_together(&self, parts: &mut [Part<'_>], rules: &Arc<RuleSet>) {
        let merged = Merged::of(parts, Kind::Charges);
        let mut whole = merged.plan();
        self.ask(op(parts), &mut whole, rules).await;
        merged.tell(&whole, parts, Kind::Charges);
        if parts.iter().any(|part| part.kind() == Kind::GivesBack) {
            self.give_back_together(parts, rules).await;
        }
    }

    /// Gives back what is to be given back; nothing in a call that is refused.
    async fn give_back_together(&self, parts: &mut [Part<'_>], rules: &Arc<RuleSet>) {
        let refuses =
            |part: &Part<'_>| part.plan.readings.iter().any(|told| told.verdict.refuses());
        let refused = parts.iter().any(|part| part.kind() == Kind::Charges && refuses(part));
        let mut merged = Merged::of(parts, Kind::GivesBack);
        if refused {
            merged.charges.iter_mut().for_each(|(charge, _)| charge.cost = 0);
        }
        let charged_at: Timestamp = self.now().await.unwrap_or_default();
        let mut whole = merged.plan();
        self.ask(Op::Refund { charged_at }, &mut whole, rules).await;
        merged.tell(&whole, parts, Kind::GivesBack);
    }
}

impl Question<'_, '_> {
    fn rules(&self, rules: &Arc<RuleSet>, limits: Limits) -> Arc<RuleSet> {
        let brought = self.limit.and_then(|limit| match limits {
            Limits::Ours => Some(rules.brought(limit, self.facts)),
            Limits::Reference => rules.brought_as_reference(limit, self.facts),
        });
        brought.map_or_else(|| Arc::clone(rules), Arc::new)
    }

    fn plan<'a>(&self, rules: &'a Arc<RuleSet>, replaced: &[u32]) -> Part<'a> {
        let (Asked::Charge(cost) | Asked::GiveBack(cost)) = self.asked;
        // A limit that is brought is no rule's, and nothing replaces it.
        let without = if rules.is_brought() { &[] } else { replaced };
        let asking = Asking { queue: Queue::Refuse, without, ..Asking::all(Op::Charge) };
        let (asked, brought) = (self.asked, rules.is_brought());
        let mut part = Part { asked, brought, plan: Plan::empty() };
        part.plan.fill(rules, self.facts, asking, times(cost));
        part
    }
}

/// The rules that those of any question of a call replace. Boxed: mostly there are none, and they are carried
/// about with every decision.
fn replaced(rules: &RuleSet, questions: &[Question<'_, '_>]) -> Box<[u32]> {
    let asking = questions.iter().filter(|question| question.limit.is_none());
    rules.replaced(asking.map(|question| question.facts)).into_vec().into()
}

/// What to do for those of the questions that charge: nothing if one of them is refused already, or if
/// all of them only look.
fn op(parts: &[Part<'_>]) -> Op {
    let mut asking = parts.iter().filter(|part| part.kind() == Kind::Charges);
    let refused = asking.clone().any(|part| part.plan.refused);
    let charges = asking.any(|part| part.asked != Asked::Charge(0));
    if charges && !refused { Op::Charge } else { Op::Peek }
}

/// What kind of question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It charges, be it nothing.
    Charges,
    GivesBack,
}

/// One question, planned.
struct Part<'a> {
    asked: Asked,
    brought: bool,
    plan: Plan<'a>,
}

impl Part<'_> {
    const fn kind(&self) -> Kind {
        match self.asked {
            Asked::Charge(_) => Kind::Charges,
            Asked::GiveBack(_) => Kind::GivesBack,
        }
    }

    /// Whether its plan can be asked as it is.
    fn is_plain(&self) -> bool {
        self.kind() == Kind::Charges && !self.brought
    }

    /// Whether the store was to be asked about a limit that no rule stands for, and did not answer.
    fn is_unanswered(&self) -> bool {
        self.brought && self.plan.readings.first().is_some_and(|reading| reading.uncounted)
    }
}

/// The charges of several questions as one batch, each counter once.
struct Merged<'a> {
    /// With the place of its rule.
    charges: SmallVec<[(Charge<'a>, u32); 4]>,
    /// Where in it the charges of the questions are, question by question.
    at: SmallVec<[u32; 4]>,
}

impl<'a> Merged<'a> {
    fn of(parts: &[Part<'a>], which: Kind) -> Self {
        let mut merged = Self { charges: SmallVec::new(), at: SmallVec::new() };
        for part in parts.iter().filter(|part| part.kind() == which) {
            for (i, charge) in part.plan.charges.iter().enumerate() {
                let rule = if part.brought { NO_RULE } else { part.plan.rule(i) };
                merged.add(*charge, rule);
            }
        }
        merged
    }

    fn add(&mut self, charge: Charge<'a>, rule: u32) {
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
        self.at.push(u32::try_from(at).unwrap_or(u32::MAX));
    }

    fn plan(&self) -> Plan<'a> {
        Plan::of_charges(self.charges.iter().copied())
    }

    /// Tells each question what was said to its charges.
    fn tell(&self, whole: &Plan<'_>, parts: &mut [Part<'a>], which: Kind) {
        let mut at = &self.at[..];
        for part in parts.iter_mut().filter(|part| part.kind() == which) {
            let (own, rest) = at.split_at(part.plan.charges.len());
            part.plan.tell_from(whole, own);
            at = rest;
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store does not answer")
    }
}

impl std::error::Error for Unanswered {}
