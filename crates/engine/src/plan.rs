//! From facts to charges: which counters a request touches.

use smallvec::SmallVec;
use tidegate_core::decision::Verdict;
use tidegate_core::key::Key;
use tidegate_core::store::{Charge, Role};
use tidegate_rules::{ChargeWhen, Facts, Limit, Matches, Mode, Rule, RuleSet};

use crate::decision::{Paid, RuleReading};

/// What is to be done for a request.
pub(crate) struct Plan<'a> {
    /// What the store is asked, in document order.
    pub(crate) charges: SmallVec<[Charge<'a>; 4]>,
    /// One for each rule in document order; those that are charged get their numbers later.
    pub(crate) readings: SmallVec<[RuleReading; 4]>,
    /// A rule refuses without counting, so nothing may be charged.
    pub(crate) refused: bool,
}

impl<'a> Plan<'a> {
    /// The plan for all rules that govern the facts, or for the one that is named.
    pub(crate) fn new(
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        only: Option<&str>,
        cost: u32,
    ) -> Self {
        let mut matches = Matches::new();
        rules.matching(facts, &mut matches);
        let mut plan = Self { charges: SmallVec::new(), readings: SmallVec::new(), refused: false };
        for at in matches {
            let rule = &rules.rules()[at as usize];
            if only.is_none_or(|only| only == rule.id()) {
                plan.add(at, rule, facts, rules, cost);
            }
        }
        plan
    }

    /// What was charged, once the store has answered.
    pub(crate) fn paid(&self) -> SmallVec<[Paid; 4]> {
        let refused = self.readings.iter().any(|reading| reading.verdict.refuses());
        let counted = self.readings.iter().filter(|reading| reading.numbers.is_some());
        counted
            .zip(&self.charges)
            .filter(|(reading, charge)| {
                charge.role == Role::Always || !refused && reading.verdict == Verdict::Allow
            })
            .map(|(reading, charge)| Paid {
                rule: reading.rule,
                fingerprint: charge.key.fingerprint,
                cost: charge.cost,
            })
            .collect()
    }

    fn add(&mut self, at: u32, rule: &'a Rule, facts: &Facts<'_>, rules: &RuleSet, cost: u32) {
        let verdict = match (rule.limit(), rule.mode()) {
            (Limit::Deny, Mode::Shadow) => Verdict::ShadowDeny,
            (Limit::Deny, _) => Verdict::Deny,
            _ => Verdict::Allow,
        };
        self.refused |= verdict.refuses();
        self.readings.push(RuleReading { rule: at, verdict, numbers: None });
        if let Limit::Policy(policy) = rule.limit() {
            let enforced = *rule.mode() != Mode::Shadow;
            self.charges.push(Charge {
                key: Key { rule: rule.id(), fingerprint: rule.key(facts, rules) },
                policy,
                cost: rule.cost().saturating_mul(u64::from(cost)),
                role: match rule.charge() {
                    _ if !enforced => Role::Shadow,
                    ChargeWhen::Always => Role::Always,
                    ChargeWhen::Admitted => Role::Enforce,
                },
                grace: rule.mode().warnings(),
                ban: rule.ban().filter(|_| enforced),
            });
        }
    }
}
