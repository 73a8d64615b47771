//! What was charged, in a form that outlives the request: by it a charge is given back, held on or
//! corrected when the request and its facts are long gone.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::Charge;
use tidegate_core::time::Timestamp;
use tidegate_rules::{Rule, RuleSet};

use crate::decision::CounterLocation;

/// Charges of one request, with the rules that it was decided under. Every charge is in one receipt
/// only, and a receipt cannot be copied: what is handed in is handed in once.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) items: SmallVec<[ReceiptItem; 2]>,
}

/// One charge that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptItem {
    /// The rule's place in its rule set.
    pub(crate) rule: u32,
    pub(crate) counter: CounterLocation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
    /// When, on the clock of the counter.
    pub(crate) charged_at: Timestamp,
    /// When the local bucket was told of what the store counts, on the local clock.
    pub(crate) local_charged_at: Timestamp,
}

impl Receipt {
    /// The same charges under the rules in force: what an old policy writes after a change would drain
    /// at its old rate. Counters that no rule in force goes on with are nobody's any more.
    /// Those of a limit that the request brought itself are nobody else's, and stay what they are.
    pub(crate) fn for_rules(mut self, rules: &Arc<RuleSet>) -> Self {
        if self.rules.is_inline_limit() {
            return self;
        }
        self.items.retain(|charged| {
            let now = successor_rule(&self.rules, charged.rule, rules);
            charged.rule = now.unwrap_or(charged.rule);
            now.is_some()
        });
        Self { rules: Arc::clone(rules), ..self }
    }

    /// The rule of a charge.
    pub(crate) fn rule(&self, charged: &ReceiptItem) -> &Rule {
        &self.rules[charged.rule]
    }

    /// A charge with another cost, on a policy.
    pub(crate) fn charge_with<'a>(
        &'a self,
        charged: &ReceiptItem,
        policy: &'a Policy,
        cost: u64,
    ) -> Charge<'a> {
        Charge::plain(self.rule(charged).key(charged.fingerprint), policy, cost)
    }

    /// A charge as it was made; nothing but a policy is ever charged.
    pub(crate) fn original_charge(&self, charged: &ReceiptItem) -> Option<Charge<'_>> {
        let policy = self.rule(charged).limit().policy()?;
        Some(self.charge_with(charged, policy, charged.cost))
    }

    /// The charges on counters of the given kind, and when they were made.
    pub(crate) fn charges_on(
        &self,
        counter: CounterLocation,
    ) -> impl Iterator<Item = (Charge<'_>, Reading)> {
        let here = self.items.iter().filter(move |charged| charged.counter == counter);
        here.filter_map(|charged| {
            let told = Reading { now: charged.charged_at, ..Reading::default() };
            Some((self.original_charge(charged)?, told))
        })
    }
}

/// The place of the rule that goes on with the counters of another, if there is one: the same id,
/// algorithm, window and generation.
pub(crate) fn successor_rule(old: &Arc<RuleSet>, rule: u32, rules: &Arc<RuleSet>) -> Option<u32> {
    if Arc::ptr_eq(old, rules) {
        return Some(rule);
    }
    let old = old.get(rule)?;
    let counter = |rule: &Rule| {
        let policy = rule.limit().policy()?;
        Some((policy.algorithm().name(), policy.quota().window, rule.generation()))
    };
    let same = |rule: &Rule| rule.id() == old.id() && counter(rule) == counter(old);
    // A key with numbers of its own most likely still has them.
    let numbers = |rule: &Rule| rule.limit().policy().map(|policy| *policy.quota());
    let alike = |rule: &Rule| same(rule) && numbers(rule) == numbers(old);
    let known = rules.rules_and_variants();
    let at = known.iter().position(alike).or_else(|| rules.rules().iter().position(same));
    at.and_then(|at| u32::try_from(at).ok())
}
