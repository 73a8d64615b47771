//! The answer for a request: every rule's reading, and the one that counts most.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Mode, Rule, RuleSet};

use crate::bill::Bill;
use crate::receipt::{Charged, Receipt};
use crate::slots::Slots;

/// The answer for a request, with the rule set it was made under. It is also the receipt for what
/// was charged, which can be handed in once; hence it cannot be copied.
#[derive(Debug)]
pub struct Decision {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) outcome: Outcome,
}

/// What came of a request. What the store tells is written here, where it stays, and looked at from here.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The rules that govern the request, in document order.
    pub(crate) governing: SmallVec<[Governing; 4]>,
    /// What each charge was told.
    pub(crate) numbers: Numbers,
    /// Who answered.
    pub(crate) answered_by: AnsweredBy,
    /// What was charged.
    pub(crate) paid: SmallVec<[Paid; 4]>,
    /// Whether a rule queues, holds slots or waits to hear of the cost.
    pub(crate) open_ended: bool,
    /// The local clock when local buckets were told what the store had charged.
    pub(crate) local_at: Timestamp,
    /// How long the store took, if that is timed.
    pub(crate) store_time: Option<Micros>,
}

/// One reading for each charge.
pub(crate) type Numbers = SmallVec<[Reading; 4]>;

/// A rule that governs the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Governing {
    /// Its place in the rule set.
    pub(crate) rule: u32,
    pub(crate) says: Says,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// This, without counting.
    Verdict(Verdict),
    /// What its charge was told, which has this place.
    Told(u32),
    /// Nothing: its charge was not answered, because another is known to refuse.
    Nothing(u32),
}

/// What was charged to one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paid {
    /// The rule's place in its rule set.
    pub(crate) rule: u32,
    /// The place of the charge.
    pub(crate) charge: u32,
    pub(crate) counter: Counter,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
}

/// Which counter a charge was made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// The store's.
    Store,
    /// The node's own, on its share.
    Local,
}

/// What one rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReading<'d> {
    /// The rule's place in its rule set.
    pub rule: u32,
    /// What it says.
    pub verdict: Verdict,
    /// The numbers; none where the rule counts nothing (`unlimited`, `deny`) or was not asked
    /// because another is known to refuse.
    pub numbers: Option<&'d Reading>,
}

impl RuleReading<'_> {
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

impl Outcome {
    /// What each rule said, in document order.
    #[inline]
    pub(crate) fn readings(&self) -> impl ExactSizeIterator<Item = RuleReading<'_>> {
        self.governing.iter().map(|governing| self.reading(governing))
    }

    #[inline]
    pub(crate) fn reading(&self, governing: &Governing) -> RuleReading<'_> {
        let (verdict, numbers) = match governing.says {
            Says::Verdict(verdict) => (verdict, None),
            Says::Told(charge) => {
                let told = &self.numbers[charge as usize];
                (told.verdict, Some(told))
            }
            Says::Nothing(_) => (Verdict::Allow, None),
        };
        RuleReading { rule: governing.rule, verdict, numbers }
    }

    /// Whether a rule refuses the request.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.readings().any(|reading| reading.verdict.refuses())
    }
}

impl Decision {
    /// Whether the request passes.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        !self.outcome.is_refused()
    }

    /// Who answered.
    #[must_use]
    pub const fn answered_by(&self) -> AnsweredBy {
        self.outcome.answered_by
    }

    /// How long the store took, where it was asked and that is timed ([`Limiter::store_timed_by`]).
    ///
    /// [`Limiter::store_timed_by`]: crate::Limiter::store_timed_by
    #[must_use]
    pub const fn store_time(&self) -> Option<Micros> {
        self.outcome.store_time
    }

    /// What was charged to the rule of one of its readings, and is not handed in yet; nothing to one that was refused.
    #[must_use]
    pub fn charged(&self, reading: &RuleReading<'_>) -> u64 {
        let of_the_rule = self.outcome.paid.iter().filter(|paid| paid.rule == reading.rule);
        of_the_rule.map(|paid| paid.cost).sum()
    }

    /// Every rule that governs the request with what it says, in document order.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = (&Rule, RuleReading<'_>)> {
        self.outcome.readings().map(|reading| (self.rule(&reading), reading))
    }

    /// The rule that counts most: of those that refuse the one with the longest wait, else the one
    /// with the least left. Rules in shadow count only where there is no other.
    #[must_use]
    pub fn tightest(&self) -> Option<(&Rule, RuleReading<'_>)> {
        let tightest = match self.is_allowed() {
            true => self.least_left(),
            false => self.longest_wait(),
        };
        tightest.map(|reading| (self.rule(&reading), reading))
    }

    // In both, the first of equals counts: document order.
    fn least_left(&self) -> Option<RuleReading<'_>> {
        let mut tightest = None;
        for reading in self.outcome.readings() {
            let Some(numbers) = reading.numbers else { continue };
            let left = (*self.rule(&reading).mode() == Mode::Shadow, numbers.remaining);
            if tightest.is_none_or(|(least, _)| left < least) {
                tightest = Some((left, reading));
            }
        }
        tightest.map(|(_, reading)| reading)
    }

    fn longest_wait(&self) -> Option<RuleReading<'_>> {
        let wait = |reading: &RuleReading<'_>| match reading.retry() {
            Retry::Now => (0, Micros::ZERO),
            Retry::After(wait) => (1, wait),
            Retry::Never => (2, Micros::ZERO),
        };
        let refusing = self.outcome.readings().filter(|reading| reading.verdict.refuses());
        refusing.min_by_key(|reading| Reverse(wait(reading)))
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
        self.told().map(|numbers| numbers.delay).max().unwrap_or_default()
    }

    /// The clock of who counted at the decision, if anybody did: the store's, or for what a local
    /// share decided the local one's.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        self.told().map(|numbers| numbers.now).find(|now| *now > Timestamp::EPOCH)
    }

    /// When it was charged, on the clock of the store that was; a refund needs it.
    #[must_use]
    pub fn charged_at(&self) -> Option<Timestamp> {
        let paid = self.outcome.paid.first()?;
        Some(self.outcome.numbers.get(paid.charge as usize)?.now)
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
    pub fn holds_slots(&self) -> Option<Micros> {
        if !self.outcome.open_ended {
            return None;
        }
        let lease = |paid: &Paid| self.rules[paid.rule].limit().policy()?.lease();
        self.outcome.paid.iter().filter_map(lease).min()
    }

    /// The slots that are held for the request, to be released when its response has ended. The
    /// decision no longer has them: what it gives back does not include them.
    pub fn take_slots(&mut self) -> Option<Slots> {
        self.holds_slots()?;
        Some(Slots(self.take_receipt(is_slot)))
    }

    /// Whether a rule that was charged waits to hear what the request has cost in the end.
    #[must_use]
    pub fn awaits_cost(&self) -> bool {
        self.outcome.open_ended
            && self.outcome.paid.iter().any(|paid| is_estimated(&self.rules[paid.rule]))
    }

    /// The bill for what was charged to rules that wait to hear what the request has cost in the end.
    /// The decision no longer has it: what it gives back does not include it.
    pub fn take_bill(&mut self) -> Option<Bill> {
        self.awaits_cost().then(|| Bill(self.take_receipt(is_estimated)))
    }

    /// Takes out the receipt for what was charged to some rules.
    pub(crate) fn take_receipt(&mut self, which: impl Fn(&Rule) -> bool) -> Receipt {
        let (rules, mut charged) = (Arc::clone(&self.rules), SmallVec::new());
        let Outcome { numbers, paid, local_at, .. } = &mut self.outcome;
        paid.retain(|paid| {
            let taken = which(&rules[paid.rule]);
            if taken {
                charged.push(Charged {
                    rule: paid.rule,
                    counter: paid.counter,
                    fingerprint: paid.fingerprint,
                    cost: paid.cost,
                    at: numbers[paid.charge as usize].now,
                    local_at: *local_at,
                });
            }
            !taken
        });
        Receipt { rules, charged }
    }

    /// What those rules were told that count.
    fn told(&self) -> impl Iterator<Item = &Reading> {
        self.outcome.readings().filter_map(|reading| reading.numbers)
    }

    fn rule(&self, reading: &RuleReading<'_>) -> &Rule {
        &self.rules[reading.rule]
    }
}

fn is_slot(rule: &Rule) -> bool {
    rule.limit().policy().is_some_and(Policy::is_concurrency)
}

fn is_estimated(rule: &Rule) -> bool {
    rule.cost().is_known_afterwards()
}
