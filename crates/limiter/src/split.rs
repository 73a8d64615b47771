//! Split rules: the limit is divided among several counters, so that a hot counter can be spread
//! over the servers of a cluster.
//!
//! ```text
//!  request ─▶ a random part of each split rule, the other rules as always
//!               │ admitted        │ refused, but only by split rules that have another part
//!               ▼                 ▼
//!            decision ◀── another part of each rule that refused, the other charges again
//! ```
//!
//! Each part is a rule of the rule set ([`Rule::split_parts`]), so receipts, local shares and
//! settlements need not know of parts. This module replaces the charges of a plan by those of
//! parts, and combines the readings. Only decisions choose parts; all other operations address
//! every part.
//!
//! [`Rule::split_parts`]: tidegate_rules::Rule::split_parts

use std::cmp::Reverse;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::policy::Algorithm;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_core::time::Micros;
use tidegate_rules::{Rule, RuleSet};

use crate::limiter::Limiter;
use crate::plan::ChargePlan;
use crate::unsettled_usage::used;

/// Chooses parts at random.
#[derive(Debug)]
pub(crate) struct PartPicker {
    seed: u64,
    picks: AtomicU64,
}

/// The part that a charge tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartChoice {
    /// Index of the part's rule.
    current: u32,
    /// The part to try if this one refuses.
    other: Option<u32>,
    /// What the first part answered, if it refused.
    first: Option<Reading>,
}

/// Indexes of charges in a plan.
type ChargeIndices = SmallVec<[usize; 4]>;

impl PartPicker {
    pub(crate) const fn with_seed(seed: u64) -> Self {
        Self { seed, picks: AtomicU64::new(0) }
    }

    fn random(&self) -> u64 {
        let pick = self.picks.fetch_add(1, Ordering::Relaxed);
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.seed, pick))
    }

    /// Two different parts of a split rule; `None` if the rule is not split.
    fn choose(&self, parts: &Range<u32>) -> Option<PartChoice> {
        let count = u64::from(parts.end - parts.start);
        let others = count.checked_sub(1).filter(|others| *others > 0)?;
        let random = self.random();
        let first = random % count;
        let second = (first + 1 + (random >> 32) % others) % count;
        // Below the number of parts, so it fits.
        let part = |number: u64| parts.start + u32::try_from(number).unwrap_or(0);
        Some(PartChoice { current: part(first), other: Some(part(second)), first: None })
    }
}

impl Default for PartPicker {
    fn default() -> Self {
        // `std` seeds each `RandomState` from the system's random source.
        Self::with_seed(RandomState::new().hash_one(0_u8))
    }
}

impl PartChoice {
    /// Changes to the other part, after the current one refused with this reading.
    fn change(&mut self, refusal: Option<Reading>) -> bool {
        let Some(other) = self.other.take() else { return false };
        (self.current, self.first) = (other, refusal);
        true
    }

    /// The reading of the rule, from the reading of the current part.
    fn combined(&self, reading: Reading) -> Reading {
        self.first.map_or(reading, |first| combine(first, reading))
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Chooses parts of split rules in a sequence that depends on the seed only, for tests.
    #[must_use]
    pub fn with_part_seed(mut self, seed: u64) -> Self {
        self.part_picker = PartPicker::with_seed(seed);
        self
    }

    /// Applies a plan that has charges of split rules.
    pub(crate) async fn apply_to_parts(
        &self,
        op: Op,
        plan: &mut ChargePlan<'_>,
        rules: &Arc<RuleSet>,
    ) {
        match op {
            Op::Charge => self.charge_parts(op, plan, rules).await,
            // The decision is known, so it need not cost more than a charge.
            Op::Peek if plan.refused => self.charge_parts(op, plan, rules).await,
            op => self.apply_to_all_parts(op, plan, rules).await,
        }
    }

    /// Charges (or reads) a random part of each split rule. While only split rules refuse, those
    /// try one more part each. A shadow rule tries its other part after the request was admitted.
    async fn charge_parts(&self, op: Op, plan: &mut ChargePlan<'_>, rules: &Arc<RuleSet>) {
        let choose = |i| self.part_picker.choose(&split_parts(plan, rules, i));
        let mut choices: SmallVec<[Option<PartChoice>; 4]> =
            (0..plan.charges.len()).map(choose).collect();
        let mut round: ChargeIndices = (0..plan.charges.len()).collect();
        let mut admitted = false;
        while !round.is_empty() {
            let charges = round.iter().map(|i| {
                let chosen = choices[*i].map(|choice| choice.current);
                let part = chosen.and_then(|part| part_charge(plan.charges[*i], rules, part));
                part.unwrap_or((plan.charges[*i], plan.rule_index(*i)))
            });
            let mut parts = ChargePlan::from_charges(charges);
            self.apply_plan(op, &mut parts, rules).await;
            let answered_by = plan.answered_by;
            plan.adopt_subset(&parts, &round);
            if admitted {
                plan.answered_by = answered_by;
            }
            for i in round.iter().copied() {
                let numbers = plan.reading_of(i).numbers;
                if let Some((choice, reading)) = choices[i].as_ref().zip(numbers) {
                    let limit = plan.charges[i].policy.limit();
                    plan.set_reading(i, Reading { limit, ..choice.combined(reading) });
                }
            }
            let refuses = |i: &usize| plan.reading_of(*i).verdict.refuses();
            let is_last = |i: &usize| choices[*i].is_none_or(|choice| choice.other.is_none());
            if round.iter().any(|i| refuses(i) && is_last(i)) {
                return;
            }
            admitted = !round.iter().any(refuses);
            let mut change = |i: &usize| {
                let reading = plan.reading_of(*i);
                let over = reading.verdict.is_violation();
                over && choices[*i].as_mut().is_some_and(|choice| choice.change(reading.numbers))
            };
            let changed: ChargeIndices = round.iter().copied().filter(|i| change(i)).collect();
            // A charge that was made although the request is refused is not repeated.
            round.retain(|i| if admitted { changed.contains(i) } else { !plan.is_charged(*i) });
            if changed.is_empty() {
                return;
            }
        }
    }

    /// Applies an operation other than a charge to all parts of split rules, and to the other
    /// counters of the plan.
    async fn apply_to_all_parts(&self, op: Op, plan: &mut ChargePlan<'_>, rules: &Arc<RuleSet>) {
        let is_split = |i: &usize| !split_parts(plan, rules, *i).is_empty();
        let (split, others): (ChargeIndices, ChargeIndices) =
            (0..plan.charges.len()).partition(is_split);
        let mut answered_by = AnsweredBy::Store;
        if !others.is_empty() {
            let mut rest = plan.subset(&others);
            self.apply_plan(op, &mut rest, rules).await;
            plan.adopt_subset(&rest, &others);
            answered_by = rest.answered_by;
        }
        for i in split {
            let (charge, range) = (plan.charges[i], split_parts(plan, rules, i));
            let parts = match op {
                Op::Refund { .. } => self.refund_to_parts(op, charge, range, rules).await,
                _ => {
                    let cost = match op {
                        Op::Force => PartCost::Divided { first: self.part_picker.random() },
                        _ => PartCost::Whole,
                    };
                    let charges = part_charges(charge, range, rules, cost);
                    let mut parts = ChargePlan::from_charges(charges);
                    self.apply_plan(op, &mut parts, rules).await;
                    parts
                }
            };
            if parts.answered_by != AnsweredBy::Store {
                answered_by = parts.answered_by;
            }
            let numbers = parts.readings.iter().filter_map(|reading| reading.numbers);
            if let Some(reading) = numbers.reduce(combine) {
                plan.set_reading(i, Reading { limit: charge.policy.limit(), ..reading });
            }
            let uncounted = parts.readings.iter().any(|reading| reading.uncounted);
            plan.set_uncounted(i, uncounted);
        }
        plan.answered_by = answered_by;
    }

    /// Refunds a charge that was made to an unknown part. The most used parts give back the cost,
    /// and no more. A log gives back only what it was charged at that time, so its parts are tried
    /// in turn. A window's parts together then admit what they would after a refund to the right
    /// part. A bucket may admit up to the cost more, because moving usage to an idle part lets it
    /// drain sooner.
    ///
    /// Returns the parts with their readings after the refund.
    async fn refund_to_parts<'r>(
        &self,
        op: Op,
        charge: Charge<'r>,
        range: Range<u32>,
        rules: &'r Arc<RuleSet>,
    ) -> ChargePlan<'r> {
        let algorithm = charge.policy.algorithm();
        let read = part_charges(Charge { cost: 0, ..charge }, range, rules, PartCost::Whole);
        let mut parts = ChargePlan::from_charges(read);
        self.apply_plan(Op::Peek, &mut parts, rules).await;
        let used_by =
            |parts: &ChargePlan<'_>, i: usize| parts.reading_of(i).numbers.as_ref().map_or(0, used);
        let mut order: Vec<usize> = (0..parts.charges.len()).collect();
        order.sort_by_key(|i| Reverse(used_by(&parts, *i)));
        let mut left = charge.cost;
        for i in order {
            let before = used_by(&parts, i);
            let cost = left.min(before);
            if cost == 0 {
                break;
            }
            // A bucket gives back at most what it shows as used, less what has drained since.
            parts.charges[i].cost = if algorithm.is_bucket() { left } else { cost };
            let mut one = parts.subset(&[i]);
            self.apply_plan(op, &mut one, rules).await;
            parts.adopt_subset(&one, &[i]);
            left -= match algorithm {
                Algorithm::SlidingWindowLog => before.saturating_sub(used_by(&parts, i)).min(cost),
                _ => cost,
            };
        }
        parts
    }
}

/// The cost of each part, when an operation addresses all of them.
#[derive(Clone, Copy)]
enum PartCost {
    /// The cost of the charge.
    Whole,
    /// An even share. What remains is divided among the parts from this number on; parts without
    /// a cost are left out.
    Divided { first: u64 },
}

/// The charges of the parts of a split rule, each with the index of its rule.
fn part_charges<'r>(
    charge: Charge<'r>,
    parts: Range<u32>,
    rules: &'r RuleSet,
    cost: PartCost,
) -> impl Iterator<Item = (Charge<'r>, u32)> {
    let count = u64::from(parts.end - parts.start).max(1);
    parts.zip(0..).filter_map(move |(part, number): (u32, u64)| {
        let cost = match cost {
            PartCost::Whole => charge.cost,
            PartCost::Divided { first } => {
                let rank = (number + count - first % count) % count;
                let share = charge.cost / count + u64::from(rank < charge.cost % count);
                Some(share).filter(|share| *share > 0)?
            }
        };
        part_charge(Charge { cost, ..charge }, rules, part)
    })
}

/// The charges that distribute a cost among the counters of a rule: the parts of a split rule, or
/// the counter itself.
pub(crate) fn divided_charges<'r>(
    charge: Charge<'r>,
    rule: &Rule,
    rules: &'r RuleSet,
) -> SmallVec<[Charge<'r>; 4]> {
    if rule.split_parts().is_empty() {
        return SmallVec::from_iter([charge]);
    }
    // The first parts are the larger ones.
    let divided = part_charges(charge, rule.split_parts(), rules, PartCost::Divided { first: 0 });
    divided.map(|(charge, _)| charge).collect()
}

/// A charge to one part instead of the whole counter, with the index of its rule.
fn part_charge<'r>(charge: Charge<'r>, rules: &'r RuleSet, part: u32) -> Option<(Charge<'r>, u32)> {
    let rule = rules.get(part)?;
    let (key, policy) = (rule.split_part()?.key(charge.key), rule.limit().policy()?);
    Some((Charge { key, policy, ..charge }, part))
}

/// Whether a plan has charges of split rules.
pub(crate) fn has_split_charge(plan: &ChargePlan<'_>, rules: &RuleSet) -> bool {
    rules.has_split_rules()
        && (0..plan.charges.len()).any(|i| !split_parts(plan, rules, i).is_empty())
}

/// The parts of a charge's rule; empty if it is not split.
fn split_parts(plan: &ChargePlan<'_>, rules: &RuleSet, charge: usize) -> Range<u32> {
    // An inline limit belongs to no rule.
    rules.get(plan.rule_index(charge)).map_or(0..0, Rule::split_parts)
}

/// What two parts amount to. The request passes if any of them admits it.
fn combine(one: Reading, other: Reading) -> Reading {
    let wait = |reading: &Reading| match reading.retry {
        Retry::Now => (0, Micros::ZERO),
        Retry::After(wait) => (1, wait),
        Retry::Never => (2, Micros::ZERO),
    };
    let sooner = if wait(&one) < wait(&other) { one } else { other };
    Reading {
        verdict: if one.verdict == Verdict::Allow { one.verdict } else { other.verdict },
        retry: sooner.retry,
        remaining: one.remaining.saturating_add(other.remaining),
        reset_after: one.reset_after.max(other.reset_after),
        next_after: one.next_after.min(other.next_after),
        ..other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_even_distinct_and_repeatable() {
        let picks = |seed| {
            let picker = PartPicker::with_seed(seed);
            let choose = |_| picker.choose(&(10..18)).unwrap();
            (0..8_000).map(choose).collect::<Vec<_>>()
        };
        let chosen = picks(7);
        assert_eq!(chosen, picks(7));
        assert_ne!(chosen, picks(8));
        let mut pairs = std::collections::BTreeMap::new();
        for PartChoice { current, other, .. } in chosen {
            *pairs.entry((current, other.unwrap())).or_insert(0) += 1;
        }
        assert_eq!(pairs.len(), 8 * 7, "every pair of different parts, in both orders");
        assert!(pairs.keys().all(|(one, other)| one != other && (10..18).contains(one)));
        // 143 on average, with a standard deviation of 12.
        assert!(pairs.values().all(|count| (80..210).contains(count)), "{pairs:?}");
        assert_eq!(PartPicker::default().choose(&(4..4)), None);
    }
}
