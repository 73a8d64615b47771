//! The limiter: one rule set at a time over one store.

use std::sync::Arc;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Key;
use tidegate_core::store::{Charge, Op, Role, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Facts, RuleSet};

use crate::decision::{Decision, Paid};
use crate::explain::Explanation;
use crate::failure;
use crate::plan::Plan;

/// Decides requests. Share it by reference or in an `Arc`; rules are swapped while it works.
#[derive(Debug)]
pub struct Limiter<S> {
    store: S,
    rules: ArcSwap<RuleSet>,
}

impl<S: Store> Limiter<S> {
    /// A limiter over a store.
    #[must_use]
    pub fn new(store: S, rules: RuleSet) -> Self {
        Self { store, rules: ArcSwap::from_pointee(rules) }
    }

    /// Decides a request and charges all rules that govern it, or none. It always answers: where the
    /// store cannot, each rule's `on_fail` does.
    pub async fn decide(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        self.apply(Op::Charge, facts, None, cost).await
    }

    /// What [`decide`](Self::decide) would say; nothing changes.
    pub async fn peek(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.apply(Op::Peek, facts, rule, cost).await
    }

    /// Charges a cost that is known only afterwards, into debt if need be.
    pub async fn force(&self, facts: &Facts<'_>, rule: Option<&str>, cost: u32) -> Decision {
        self.apply(Op::Force, facts, rule, cost).await
    }

    /// Gives back what was charged at an instant of the store's clock; without one, now.
    pub async fn refund(
        &self,
        facts: &Facts<'_>,
        rule: Option<&str>,
        cost: u32,
        charged_at: Option<Timestamp>,
    ) -> Decision {
        let now = match charged_at {
            Some(at) => at,
            None => self.store.now().await.unwrap_or_default(),
        };
        self.apply(Op::Refund { charged_at: now }, facts, rule, cost).await
    }

    /// Gives back what a decision charged, once: the decision is its own receipt.
    pub async fn give_back(&self, decision: Decision) {
        let Some(charged_at) = decision.now() else { return };
        let rule = |paid: &Paid| &decision.rules.rules()[paid.rule as usize];
        let charges: SmallVec<[Charge<'_>; 4]> = decision
            .paid
            .iter()
            .filter_map(|paid| {
                let key = Key { rule: rule(paid).id(), fingerprint: paid.fingerprint };
                let policy = rule(paid).limit().policy()?;
                let (cost, role) = (paid.cost, Role::Enforce);
                Some(Charge { key, policy, cost, role, grace: None, ban: None })
            })
            .collect();
        let mut readings: SmallVec<[Reading; 4]> =
            SmallVec::from_elem(Reading::default(), charges.len());
        // A store that is gone has nothing to give back to; what it forgot is refilled anyway.
        _ = self.store.apply(Op::Refund { charged_at }, &charges, &mut readings).await;
    }

    /// Forgets the counters, warnings and bans of whoever the facts describe.
    pub async fn reset(&self, facts: &Facts<'_>, rule: Option<&str>) -> Decision {
        self.apply(Op::Reset, facts, rule, 1).await
    }

    /// Which rules govern a request, whose counters they are, how those stand, and what decides.
    pub async fn explain(&self, facts: &Facts<'_>, cost: u32) -> Explanation {
        let rules = self.rules();
        let mut completed = facts.borrowed();
        rules.complete(&mut completed);
        let decision = self.apply_under(Arc::clone(&rules), Op::Peek, facts, None, cost);
        Explanation::new(decision.await, &completed, cost)
    }

    /// Puts a rule set into force. Counters of rules that keep their id, algorithm and window are
    /// kept, and what was used stays used.
    ///
    /// # Errors
    /// When the store's clock cannot be read; the rules in force stay.
    pub async fn install(&self, rules: RuleSet) -> Result<(), StoreError> {
        let now = self.store.now().await?;
        self.rules.store(Arc::new(rules.following(&self.rules.load(), now)));
        Ok(())
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

    async fn apply(&self, op: Op, facts: &Facts<'_>, only: Option<&str>, cost: u32) -> Decision {
        self.apply_under(self.rules(), op, facts, only, cost).await
    }

    async fn apply_under(
        &self,
        rules: Arc<RuleSet>,
        op: Op,
        facts: &Facts<'_>,
        only: Option<&str>,
        cost: u32,
    ) -> Decision {
        let (readings, answered_by, paid) = {
            let mut facts = facts.borrowed();
            rules.complete(&mut facts);
            let mut plan = Plan::new(&rules, &facts, only, cost);
            let op = if plan.refused && op == Op::Charge { Op::Peek } else { op };
            let answered_by = self.ask(op, &mut plan, &rules).await;
            let paid = if op == Op::Charge { plan.paid() } else { SmallVec::new() };
            (plan.readings, answered_by, paid)
        };
        Decision { rules, readings, answered_by, paid }
    }

    /// Asks the store, or where it does not answer the rules' `on_fail`, and fills in the numbers.
    async fn ask(&self, op: Op, plan: &mut Plan<'_>, rules: &RuleSet) -> AnsweredBy {
        if plan.charges.is_empty() {
            return AnsweredBy::Store;
        }
        let mut numbers: SmallVec<[Reading; 4]> =
            SmallVec::from_elem(Reading::default(), plan.charges.len());
        let answer = self.store.apply(op, &plan.charges, &mut numbers).await;
        let rule_of = |at: u32| &rules.rules()[at as usize];
        let counted =
            plan.readings.iter_mut().filter(|told| rule_of(told.rule).limit().policy().is_some());
        for (i, ((told, charge), reading)) in counted.zip(&plan.charges).zip(numbers).enumerate() {
            let reading = match &answer {
                // A remembered refusal did not ask for the others' counters.
                Ok(AnsweredBy::DenyCache) if !reading.verdict.refuses() => continue,
                Ok(_) => reading,
                Err(error) if error.answered.contains(&i) => reading,
                Err(_) => failure::reading(rule_of(told.rule).on_fail(), charge),
            };
            (told.verdict, told.numbers) = (reading.verdict, Some(reading));
        }
        answer.unwrap_or(AnsweredBy::Fallback)
    }
}
