//! Receipts: record what a request was charged, so that the charge can be refunded, renewed or
//! corrected after the request and its facts are dropped.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::Charge;
use tidegate_core::time::Timestamp;
use tidegate_rules::{Rule, RuleSet};

use crate::decision::{ChargeRecord, CounterLocation, RuleReading};

/// Charges of one request, with the rules under which it was decided. Every charge is in exactly
/// one receipt, and a receipt is not `Clone`, so a charge cannot be refunded twice.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) items: SmallVec<[ReceiptItem; 2]>,
}

/// One charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptItem {
    /// Index of the rule in its rule set.
    pub(crate) rule: u32,
    pub(crate) counter: CounterLocation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
    /// When the charge was made, by the clock of the store that counted it.
    pub(crate) charged_at: Timestamp,
    /// When a charge made by the store was mirrored to the local bucket, by the local clock.
    pub(crate) local_charged_at: Timestamp,
}

impl ReceiptItem {
    pub(crate) fn new(
        record: &ChargeRecord,
        reading: &RuleReading,
        local_charged_at: Timestamp,
    ) -> Self {
        Self {
            rule: record.rule,
            counter: record.counter,
            fingerprint: record.fingerprint,
            cost: record.cost,
            charged_at: record.charged_at(reading),
            local_charged_at,
        }
    }
}

impl Receipt {
    /// Maps the charges to the active rules, since writes under an old policy would drain at its
    /// old rate. Charges whose counters no active rule uses are dropped. Charges of an inline limit
    /// are kept as they are, because no rule can replace it.
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

    /// A charge to the same counter with another policy and cost.
    pub(crate) fn charge_with<'a>(
        &'a self,
        charged: &ReceiptItem,
        policy: &'a Policy,
        cost: u64,
    ) -> Charge<'a> {
        Charge::plain(self.rule(charged).key(charged.fingerprint), policy, cost)
    }

    /// The charge as it was made. `None` only for a rule without a policy, which is never charged.
    pub(crate) fn original_charge(&self, charged: &ReceiptItem) -> Option<Charge<'_>> {
        let policy = self.rule(charged).limit().policy()?;
        Some(self.charge_with(charged, policy, charged.cost))
    }

    /// The charges whose counter `is_here` selects, each with a reading that holds the time of the
    /// charge.
    pub(crate) fn charges_where(
        &self,
        is_here: impl Fn(&ReceiptItem) -> bool,
    ) -> impl Iterator<Item = (Charge<'_>, Reading)> {
        let here = self.items.iter().filter(move |charged| is_here(charged));
        here.filter_map(|charged| {
            let reading = Reading { now: charged.charged_at, ..Reading::default() };
            Some((self.original_charge(charged)?, reading))
        })
    }
}

/// Index of the rule in `rules` that uses the same counters as the given old rule: same ID,
/// algorithm, window and generation, and the same part of as many parts.
pub(crate) fn successor_rule(old: &Arc<RuleSet>, rule: u32, rules: &Arc<RuleSet>) -> Option<u32> {
    if Arc::ptr_eq(old, rules) {
        return Some(rule);
    }
    let old = old.get(rule)?;
    let counter = |rule: &Rule| {
        let limit = rule.document_limit();
        let policy = limit.policy()?;
        let identity = (policy.algorithm().name(), policy.quota().window, rule.generation());
        Some((identity, rule.split_parts().len(), rule.split_part().copied()))
    };
    let same = |rule: &Rule| rule.id() == old.id() && counter(rule) == counter(old);
    // Prefer a variant with the same quota: a key with an override most likely still has it.
    let numbers = |rule: &Rule| rule.limit().policy().map(|policy| *policy.quota());
    let alike = |rule: &Rule| same(rule) && numbers(rule) == numbers(old);
    let known = rules.rules_and_variants();
    // Otherwise the first is that of the document, or a part of it.
    let at = known.iter().position(alike).or_else(|| known.iter().position(same));
    at.and_then(|at| u32::try_from(at).ok())
}
