//! The decision on a request: the reading of every matching rule, and the tightest of them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Rule, RuleMode, RuleSet};

use crate::deferred_charge::DeferredCharge;
#[cfg(feature = "seeded-bugs")]
use crate::lease::LenderId;
use crate::lease::UnitOrigin;
use crate::receipt::{Receipt, ReceiptItem};
use crate::slots::HeldSlots;

/// The decision on a request, with the rule set it was made under. It is also the receipt for what
/// was charged. A receipt can be redeemed only once, so a decision is not `Clone`.
#[derive(Debug)]
pub struct Decision {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) readings: SmallVec<[RuleReading; 4]>,
    pub(crate) answered_by: AnsweredBy,
    pub(crate) charge_records: SmallVec<[ChargeRecord; 4]>,
    /// Whether a rule queues the request, holds slots for it, or learns its cost from the response.
    pub(crate) open_ended: bool,
    /// Local time at which the store's charges were mirrored to the local buckets.
    pub(crate) local_charged_at: Timestamp,
    pub(crate) store_time: Option<Micros>,
}

/// A charge made on one rule's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargeRecord {
    /// Index of the rule's reading in the decision.
    pub(crate) reading_index: u32,
    /// Index of the rule that counted it. It differs from the rule of the reading if that is split.
    pub(crate) rule: u32,
    pub(crate) counter: CounterLocation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
}

impl ChargeRecord {
    /// When the charge was made, by the clock of the store that counted it.
    pub(crate) fn charged_at(&self, reading: &RuleReading) -> Timestamp {
        match self.counter {
            CounterLocation::Lease(origin) => origin.granted_at,
            _ => reading.numbers.unwrap_or_default().now,
        }
    }

    /// Whether the store of another region counted it.
    fn is_borrowed(&self) -> bool {
        matches!(self.counter, CounterLocation::Lease(UnitOrigin { lender: Some(_), .. }))
    }

    /// The region whose store counted it, if that is not this node's.
    #[cfg(feature = "seeded-bugs")]
    fn lender(&self) -> Option<usize> {
        match self.counter {
            CounterLocation::Lease(origin) => origin.lender.map(LenderId::index),
            _ => None,
        }
    }
}

/// Where the charged counter is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterLocation {
    /// In the store.
    Store,
    /// In the node's local store, under its share of the limit.
    Local,
    /// In the store that granted the units of this lease.
    Lease(UnitOrigin),
    /// In the store, to which this flush of the node reports it.
    Async { flush: u64 },
}

/// One rule's verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReading {
    /// Index of the rule in its rule set.
    pub rule: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// The counter's state. `None` if the rule has no counter (`unlimited`, `deny`), or if its
    /// counter was not read because another rule is known to refuse.
    pub numbers: Option<Reading>,
    /// Whether no counter was read because the store did not answer. The verdict then comes from
    /// the rule's `on_fail`, and only the limit and the time in `numbers` are valid.
    pub uncounted: bool,
}

/// A charge made on one rule's counter, for a test that checks bounds.
#[cfg(feature = "seeded-bugs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeOrigin {
    /// Index of the rule in its rule set.
    pub rule: u32,
    /// The counter.
    pub fingerprint: Fingerprint,
    /// The cost.
    pub cost: u64,
    /// Who counted it: the store, a local share, or a lease.
    pub counted_by: AnsweredBy,
    /// The position in the list of [`Limiter::with_lenders`](crate::Limiter::with_lenders) of the
    /// region whose store counted it, if that is not this node's.
    pub lender: Option<usize>,
    /// When the charge was made, by the clock of the store that counted it.
    pub charged_at: Timestamp,
}

impl RuleReading {
    /// A reading without counter state.
    pub(crate) const fn new(rule: u32, verdict: Verdict) -> Self {
        Self { rule, verdict, numbers: None, uncounted: false }
    }

    /// When to retry. A rule that refuses without a counter never admits a request.
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
    /// Whether the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        !self.readings.iter().any(|reading| reading.verdict.refuses())
    }

    /// What produced the readings: the store, the deny cache or the fallback.
    #[must_use]
    pub const fn answered_by(&self) -> AnsweredBy {
        self.answered_by
    }

    /// Duration of the store call. `None` if there was none or if it was not timed
    /// ([`Limiter::with_store_clock`]).
    ///
    /// [`Limiter::with_store_clock`]: crate::Limiter::with_store_clock
    #[must_use]
    pub const fn store_time(&self) -> Option<Micros> {
        self.store_time
    }

    /// The cost charged to the rule of `reading` and not yet taken out as a receipt; 0 for a
    /// refused request.
    #[must_use]
    pub fn charged_cost(&self, reading: &RuleReading) -> u64 {
        let is_for_rule = |record: &&ChargeRecord| {
            let charged = self.readings.get(record.reading_index as usize);
            charged.is_some_and(|charged| charged.rule == reading.rule)
        };
        self.charge_records.iter().filter(is_for_rule).map(|record| record.cost).sum()
    }

    /// Every matching rule with its reading, in document order.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = (&Rule, &RuleReading)> {
        self.readings.iter().map(|reading| (self.rule(reading), reading))
    }

    /// The rule that determines the response: of the refusing rules the one with the longest wait,
    /// otherwise the one with the least remaining. Shadow rules are used only if there is no other.
    #[must_use]
    pub fn tightest(&self) -> Option<(&Rule, &RuleReading)> {
        let longest = |reading: &RuleReading| match reading.retry() {
            Retry::Now => (0, Micros::ZERO),
            Retry::After(wait) => (1, wait),
            Retry::Never => (2, Micros::ZERO),
        };
        let refusing = self.readings.iter().filter(|reading| reading.verdict.refuses());
        // `min_by_key` returns the first of equal elements, so ties go by document order.
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

    /// How long to wait before a retry of a refused request; `None` if it is allowed, or if no wait
    /// would help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.tightest()?.1.retry() {
            Retry::After(wait) if !self.is_allowed() => Some(wait.into()),
            _ => None,
        }
    }

    /// The limit of the [tightest](Self::tightest) rule: the most requests that can pass at once.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        Some(self.tightest()?.1.numbers?.limit)
    }

    /// How many more requests the [tightest](Self::tightest) rule allows now. `None` if no rule
    /// with a limit matched, or if the store did not answer.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        let (_, reading) = self.tightest()?;
        Some(reading.numbers.filter(|_| !reading.uncounted)?.remaining)
    }

    /// The rules that exceeded their limit but let the request pass with a warning.
    pub fn warnings(&self) -> impl Iterator<Item = &Rule> {
        self.readings()
            .filter(|(_, reading)| reading.verdict == Verdict::Warn)
            .map(|(rule, _)| rule)
    }

    /// How long a queueing rule delays the request.
    #[must_use]
    pub fn delay(&self) -> Micros {
        let delays = self.readings.iter().filter_map(|reading| reading.numbers);
        delays.map(|numbers| numbers.delay).max().unwrap_or_default()
    }

    /// The time of the decision, if a rule with a limit matched: by the store's clock, or by the
    /// local clock if the store did not answer.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let numbers = self.readings.iter().filter_map(|reading| reading.numbers);
        numbers.map(|numbers| numbers.now).find(|now| *now > Timestamp::EPOCH)
    }

    /// When the request was charged, by the clock of the charged store; required for a refund. Of
    /// several charges, the earliest.
    ///
    /// It is the epoch if units of another region were spent, unless slots are held: a refund with
    /// this date goes to the store of this region, where it must not restore what another one lent.
    /// [`Limiter::refund_decision`](crate::Limiter::refund_decision) refunds such a charge.
    #[must_use]
    pub fn charged_at(&self) -> Option<Timestamp> {
        if self.charge_records.iter().any(ChargeRecord::is_borrowed)
            && self.shortest_hold().is_none()
        {
            return Some(Timestamp::EPOCH);
        }
        let charged_at = |record: &ChargeRecord| {
            let reading = self.readings.get(record.reading_index as usize);
            reading.map(|reading| record.charged_at(reading))
        };
        self.charge_records.iter().filter_map(charged_at).min()
    }

    /// The charges that were made for the request.
    #[cfg(feature = "seeded-bugs")]
    pub fn charge_origins(&self) -> impl Iterator<Item = ChargeOrigin> {
        self.charge_records.iter().filter_map(|record| {
            let reading = self.readings.get(record.reading_index as usize)?;
            let counted_by = match record.counter {
                CounterLocation::Store => AnsweredBy::Store,
                CounterLocation::Local => AnsweredBy::Fallback,
                CounterLocation::Lease(UnitOrigin { lender: Some(_), .. }) => AnsweredBy::Borrowed,
                CounterLocation::Lease(_) => AnsweredBy::Lease,
                CounterLocation::Async { .. } => AnsweredBy::Async,
            };
            let lender = record.lender();
            let ChargeRecord { fingerprint, cost, .. } = *record;
            let charged_at = record.charged_at(reading);
            let rule = reading.rule;
            Some(ChargeOrigin { rule, fingerprint, cost, counted_by, lender, charged_at })
        })
    }

    /// The rules under which the decision was made.
    #[must_use]
    pub const fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// The version of those rules.
    #[must_use]
    pub fn rules_version(&self) -> u64 {
        self.rules.version()
    }

    /// How long slots are held for the request, if a concurrency limit matched: the shortest hold
    /// time of the matching rules.
    #[must_use]
    pub fn shortest_hold(&self) -> Option<Micros> {
        if !self.open_ended {
            return None;
        }
        let hold = |record: &ChargeRecord| self.charged_rule(record)?.limit().policy()?.slot_hold();
        self.charge_records.iter().filter_map(hold).min()
    }

    /// Takes the slots held for the request; release them when its response has ended. A refund of
    /// this decision no longer includes them.
    pub fn take_slots(&mut self) -> Option<HeldSlots> {
        self.shortest_hold()?;
        Some(HeldSlots(self.take_receipt(is_concurrency_rule)))
    }

    /// Whether a charged rule learns the request's cost from the response.
    #[must_use]
    pub fn has_deferred_cost(&self) -> bool {
        self.open_ended
            && self
                .charge_records
                .iter()
                .filter_map(|record| self.charged_rule(record))
                .any(is_cost_deferred)
    }

    /// Takes the charges of rules that learn the cost from the response, to be corrected later. A
    /// refund of this decision no longer includes them.
    pub fn take_deferred_charge(&mut self) -> Option<DeferredCharge> {
        self.has_deferred_cost().then(|| DeferredCharge(self.take_receipt(is_cost_deferred)))
    }

    /// Takes the charges of the selected rules, to be corrected later; `None` if there are none. A
    /// refund of this decision no longer includes them.
    pub fn take_charge(&mut self, selects: impl Fn(&Rule) -> bool) -> Option<DeferredCharge> {
        let receipt = self.take_receipt(selects);
        (!receipt.items.is_empty()).then_some(DeferredCharge(receipt))
    }

    /// Takes the receipt for the charges of the selected rules.
    pub(crate) fn take_receipt(&mut self, which: impl Fn(&Rule) -> bool) -> Receipt {
        let (rules, mut charged) = (Arc::clone(&self.rules), SmallVec::new());
        let (readings, local_charged_at) = (&self.readings, self.local_charged_at);
        self.charge_records.retain(|record| {
            let reading = &readings[record.reading_index as usize];
            let taken = which(&rules[reading.rule]);
            if taken {
                charged.push(ReceiptItem::new(record, reading, local_charged_at));
            }
            !taken
        });
        Receipt { rules, items: charged }
    }

    fn charged_rule(&self, record: &ChargeRecord) -> Option<&Rule> {
        Some(self.rule(self.readings.get(record.reading_index as usize)?))
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
