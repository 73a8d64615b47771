//! The answer for a request: every rule's reading, and the one that counts most.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Rule, RuleMode, RuleSet};

use crate::deferred_charge::DeferredCharge;
use crate::receipt::{Receipt, ReceiptItem};
use crate::slots::HeldSlots;

/// The answer for a request, with the rule set it was made under. It is also the receipt for what
/// was charged, which can be handed in once; hence it cannot be copied.
#[derive(Debug)]
pub struct Decision {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) readings: SmallVec<[RuleReading; 4]>,
    pub(crate) answered_by: AnsweredBy,
    pub(crate) charge_records: SmallVec<[ChargeRecord; 4]>,
    /// Whether a rule queues, holds slots or waits to hear of the cost.
    pub(crate) open_ended: bool,
    /// The local clock when local buckets were told what the store had charged.
    pub(crate) local_charged_at: Timestamp,
    pub(crate) store_time: Option<Micros>,
}

/// What was charged to one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargeRecord {
    /// The place of the rule's reading in the decision.
    pub(crate) reading_index: u32,
    pub(crate) counter: CounterLocation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
}

/// Which counter a charge was made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterLocation {
    /// The store's.
    Store,
    /// The node's own, on its share.
    Local,
}

/// What one rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReading {
    /// The rule's place in its rule set.
    pub rule: u32,
    /// What it says.
    pub verdict: Verdict,
    /// The numbers; none where the rule counts nothing (`unlimited`, `deny`) or was not asked
    /// because another is known to refuse.
    pub numbers: Option<Reading>,
    /// Whether no counter was read, because the store did not answer: the rule's `on_fail` did, and
    /// of the numbers only the limit and the time are known.
    pub uncounted: bool,
}

impl RuleReading {
    /// What is said before any counter is read.
    pub(crate) const fn new(rule: u32, verdict: Verdict) -> Self {
        Self { rule, verdict, numbers: None, uncounted: false }
    }

    /// When to come back. A rule that refuses without counting never passes anyone.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match (self.numbers, self.verdict.is_violation()) {
            (Some(reading), _) => reading.retry,
            (None, true) => Retry::Never,
            (None, false) => Retry::Now,
        }
    }
}

impl Decision {
    /// Whether the request passes.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        !self.readings.iter().any(|reading| reading.verdict.refuses())
    }

    /// Who answered.
    #[must_use]
    pub const fn answered_by(&self) -> AnsweredBy {
        self.answered_by
    }

    /// How long the store took, where it was asked and that is timed ([`Limiter::with_store_clock`]).
    ///
    /// [`Limiter::with_store_clock`]: crate::Limiter::store_timed_by
    #[must_use]
    pub const fn store_time(&self) -> Option<Micros> {
        self.store_time
    }

    /// What was charged to the rule of one of its readings, and is not handed in yet; nothing to one that was refused.
    #[must_use]
    pub fn charged_cost(&self, reading: &RuleReading) -> u64 {
        let of_the_rule = |paid: &&ChargeRecord| {
            let charged = self.readings.get(paid.reading_index as usize);
            charged.is_some_and(|charged| charged.rule == reading.rule)
        };
        self.charge_records.iter().filter(of_the_rule).map(|paid| paid.cost).sum()
    }

    /// Every rule that governs the request with what it says, in document order.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = (&Rule, &RuleReading)> {
        self.readings.iter().map(|reading| (self.rule(reading), reading))
    }

    /// The rule that counts most: of those that refuse the one with the longest wait, else the one
    /// with the least left. Rules in shadow count only where there is no other.
    #[must_use]
    pub fn tightest(&self) -> Option<(&Rule, &RuleReading)> {
        let longest = |reading: &RuleReading| match reading.retry() {
            Retry::Now => (0, Micros::ZERO),
            Retry::After(wait) => (1, wait),
            Retry::Never => (2, Micros::ZERO),
        };
        let refusing = self.readings.iter().filter(|reading| reading.verdict.refuses());
        // `min_by_key` takes the first of equals: document order.
        let tightest = refusing.min_by_key(|reading| Reverse(longest(reading))).or_else(|| {
            let left = |reading: &RuleReading| Some(reading.numbers.as_ref()?.remaining);
            let counted =
                self.readings.iter().filter_map(|reading| Some((left(reading)?, reading)));
            let shadow = |reading: &RuleReading| *self.rule(reading).mode() == RuleMode::Shadow;
            counted
                .min_by_key(|(left, reading)| (shadow(reading), *left))
                .map(|(_, reading)| reading)
        });
        tightest.map(|reading| (self.rule(reading), reading))
    }

    /// The rules that let the request pass with a warning.
    pub fn warnings(&self) -> impl Iterator<Item = &Rule> {
        self.readings()
            .filter(|(_, reading)| reading.verdict == Verdict::Warn)
            .map(|(rule, _)| rule)
    }

    /// How long the request has to wait its turn.
    #[must_use]
    pub fn delay(&self) -> Micros {
        let delays = self.readings.iter().filter_map(|reading| reading.numbers);
        delays.map(|numbers| numbers.delay).max().unwrap_or_default()
    }

    /// When it was made, if a limit governs the request: by the store's clock, or by the local one
    /// where the store did not answer.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let told = self.readings.iter().filter_map(|reading| reading.numbers);
        told.map(|numbers| numbers.now).find(|now| *now > Timestamp::EPOCH)
    }

    /// When it was charged, on the clock of the store that was; a refund needs it.
    #[must_use]
    pub fn charged_at(&self) -> Option<Timestamp> {
        let paid = self.charge_records.first()?;
        Some(self.readings.get(paid.reading_index as usize)?.numbers?.now)
    }

    /// The rules that it was made under.
    #[must_use]
    pub const fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// The version of the rule set that decided.
    #[must_use]
    pub fn rules_version(&self) -> u64 {
        self.rules.version()
    }

    /// For how long slots are held for the request, if a concurrency limit governs it: the shortest of
    /// their leases.
    #[must_use]
    pub fn slot_lease(&self) -> Option<Micros> {
        if !self.open_ended {
            return None;
        }
        let lease = |paid: &ChargeRecord| self.charged_rule(paid)?.limit().policy()?.slot_hold();
        self.charge_records.iter().filter_map(lease).min()
    }

    /// The slots that are held for the request, to be released when its response has ended. The
    /// decision no longer has them: what it gives back does not include them.
    pub fn take_slots(&mut self) -> Option<HeldSlots> {
        self.slot_lease()?;
        Some(HeldSlots(self.take_receipt(is_concurrency_rule)))
    }

    /// Whether a rule that was charged waits to hear what the request has cost in the end.
    #[must_use]
    pub fn has_deferred_cost(&self) -> bool {
        self.open_ended
            && self
                .charge_records
                .iter()
                .filter_map(|paid| self.charged_rule(paid))
                .any(is_cost_deferred)
    }

    /// The bill for what was charged to rules that wait to hear what the request has cost in the end.
    /// The decision no longer has it: what it gives back does not include it.
    pub fn take_deferred_charge(&mut self) -> Option<DeferredCharge> {
        self.has_deferred_cost().then(|| DeferredCharge(self.take_receipt(is_cost_deferred)))
    }

    /// Takes out the receipt for what was charged to some rules.
    pub(crate) fn take_receipt(&mut self, which: impl Fn(&Rule) -> bool) -> Receipt {
        let (rules, mut charged) = (Arc::clone(&self.rules), SmallVec::new());
        let (readings, local_at) = (&self.readings, self.local_charged_at);
        self.charge_records.retain(|paid| {
            let reading = &readings[paid.reading_index as usize];
            let taken = which(&rules[reading.rule]);
            if taken {
                charged.push(ReceiptItem {
                    rule: reading.rule,
                    counter: paid.counter,
                    fingerprint: paid.fingerprint,
                    cost: paid.cost,
                    charged_at: reading.numbers.unwrap_or_default().now,
                    local_charged_at: local_at,
                });
            }
            !taken
        });
        Receipt { rules, items: charged }
    }

    fn charged_rule(&self, paid: &ChargeRecord) -> Option<&Rule> {
        Some(self.rule(self.readings.get(paid.reading_index as usize)?))
    }

    fn rule(&self, reading: &RuleReading) -> &Rule {
        &self.rules[reading.rule]
    }
}

fn is_concurrency_rule(rule: &Rule) -> bool {
    rule.limit().policy().is_some_and(Policy::is_concurrency)
}

fn is_cost_deferred(rule: &Rule) -> bool {
    rule.cost().is_known_after_response()
}
