//! The charge plan: which counters a request charges, and the result of each charge.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::key::Key;
use tidegate_core::policy::{LeakMode, Meter, Policy};
use tidegate_core::store::{Charge, Op, QueueMode, Role};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{
    ChargeWhen, Facts, MatchedRules, OnFail, RequestKeys, Rule, RuleLimit, RuleMode, RuleSet,
};

use crate::decision::{ChargeRecord, CounterLocation, Decision, RuleReading};
use crate::node_counters::NodeMode;
use crate::receipt::{Receipt, ReceiptItem};

/// One reading per charge of a plan.
pub(crate) type PlanReadings = SmallVec<[Reading; INLINE_CHARGES]>;

/// Number of charges stored inline, enough for most requests; a plan with more allocates.
pub(crate) const INLINE_CHARGES: usize = 4;

/// Selects the operation and the rules that a plan is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanOptions<'o> {
    pub(crate) op: Op,
    /// Plan only for the rule with this ID; `None` means all matching rules.
    pub(crate) only_rule: Option<&'o str>,
    /// Indices of rules to skip because another query of the batch matched a rule that replaces
    /// them.
    pub(crate) excluded_rules: &'o [u32],
    /// Whether a queueing rule may delay the request or must refuse it.
    pub(crate) queue: QueueMode,
}

impl PlanOptions<'_> {
    /// All matching rules, for a caller that can delay the request.
    pub(crate) const fn all_rules(op: Op) -> Self {
        Self { op, only_rule: None, excluded_rules: &[], queue: QueueMode::Hold }
    }
}

/// The charges to make for a request and, once applied, their results.
pub(crate) struct ChargePlan<'a> {
    /// The charges to send to the store, in document order.
    pub(crate) charges: SmallVec<[Charge<'a>; 4]>,
    /// For each charge, the index of its reading in `readings`.
    reading_indices: SmallVec<[u32; 4]>,
    /// One per matching rule, in document order; the numbers of charged rules are filled in later.
    pub(crate) readings: SmallVec<[RuleReading; 4]>,
    /// Whether a `deny` rule refuses the request to decide, so that nothing may be charged.
    pub(crate) refused: bool,
    /// What produced the readings: the store, the deny cache or the fallback.
    pub(crate) answered_by: AnsweredBy,
    /// The charges that were made.
    pub(crate) charge_records: SmallVec<[ChargeRecord; 4]>,
    /// Whether a rule queues the request, holds slots for it, or learns its cost from the response.
    pub(crate) open_ended: bool,
    /// Local time at which the store's charges were mirrored to the local buckets.
    pub(crate) local_charged_at: Timestamp,
    /// Duration of the store call, if a store clock is set.
    pub(crate) store_time: Option<Micros>,
}

impl<'a> ChargePlan<'a> {
    /// Fills the plan with the rules that match the enriched facts, limited by `options`. The plan
    /// is large, so it is filled in place.
    pub(crate) fn fill(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        options: PlanOptions<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        // The enriched facts are dropped before the store is called; the plan does not need them.
        rules.with_enriched_facts(facts, |facts| {
            self.add_matching_rules(rules, facts, options, cost);
        });
        self.refused &= options.op == Op::Charge;
    }

    #[inline(never)]
    fn add_matching_rules(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        options: PlanOptions<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        let (mut matches, mut keys) = (MatchedRules::new(), RequestKeys::new(rules, facts));
        rules.match_rules(facts, &mut matches);
        for at in matches.into_iter().filter(|at| !options.excluded_rules.contains(at)) {
            let at = rules.variant_for(at, facts);
            let rule = &rules[at];
            if options.only_rule.is_none_or(|only| only == rule.id()) {
                self.add_rule(at, rule, &mut keys, cost(rule), options.queue);
            }
        }
    }

    /// Creates a plan for charges whose counters are already known from a receipt.
    pub(crate) fn from_receipt_items(rules: &'a RuleSet, charged: &[ReceiptItem]) -> Self {
        let mut plan = Self::empty();
        for ReceiptItem { rule: at, fingerprint, cost, .. } in charged {
            let rule = &rules[*at];
            let Some(policy) = rule.limit().policy() else { continue };
            plan.push_charge(Charge::plain(rule.key(*fingerprint), policy, *cost));
            plan.readings.push(RuleReading::new(*at, Verdict::Allow));
        }
        plan
    }

    /// Creates a plan from the charges of several plans, each with the index of its rule.
    pub(crate) fn from_charges(charges: impl IntoIterator<Item = (Charge<'a>, u32)>) -> Self {
        let mut plan = Self::empty();
        for (charge, rule) in charges {
            plan.push_charge(charge);
            plan.readings.push(RuleReading::new(rule, Verdict::Allow));
        }
        plan
    }

    /// A plan of some of this plan's charges.
    pub(crate) fn subset(&self, which: &[usize]) -> Self {
        Self::from_charges(which.iter().map(|i| (self.charges[*i], self.rule_index(*i))))
    }

    /// Copies the results of a [`subset`](Self::subset) to this plan.
    pub(crate) fn adopt_subset(&mut self, part: &ChargePlan<'_>, which: &[usize]) {
        for (own, other) in which.iter().map(|i| self.reading_indices[*i]).zip(0..) {
            let reading = &mut self.readings[own as usize];
            *reading = RuleReading { rule: reading.rule, ..part.readings[other as usize] };
            let records = part.charge_records.iter().filter(|it| it.reading_index == other);
            let records = records.map(|record| ChargeRecord { reading_index: own, ..*record });
            self.charge_records.extend(records);
        }
        self.answered_by = part.answered_by;
        self.set_mirrored_at(part.local_charged_at);
        self.store_time = match (self.store_time, part.store_time) {
            (Some(one), Some(other)) => Some(Micros::new(one.get().saturating_add(other.get()))),
            (one, other) => one.or(other),
        };
    }

    /// Records when charges were mirrored to the local buckets, by the local clock; the epoch if
    /// none were. Of several times, the earliest counts.
    pub(crate) fn set_mirrored_at(&mut self, at: Timestamp) {
        self.local_charged_at = match (self.local_charged_at, at) {
            (Timestamp::EPOCH, at) | (at, Timestamp::EPOCH) => at,
            (one, other) => one.min(other),
        };
    }

    /// The reading of a charge's rule.
    pub(crate) fn reading_of(&self, charge: usize) -> &RuleReading {
        &self.readings[self.reading_indices[charge] as usize]
    }

    /// Whether a charge was made.
    pub(crate) fn is_charged(&self, charge: usize) -> bool {
        let index = self.reading_indices[charge];
        self.charge_records.iter().any(|record| record.reading_index == index)
    }

    /// Sets whether no counter was read for a charge.
    pub(crate) fn set_uncounted(&mut self, charge: usize, uncounted: bool) {
        self.readings[self.reading_indices[charge] as usize].uncounted = uncounted;
    }

    /// Records that a charge was made.
    pub(crate) fn record_charge(&mut self, charge: usize, counter: CounterLocation) {
        let Charge { key, cost, .. } = self.charges[charge];
        let reading_index = self.reading_indices[charge];
        let (rule, fingerprint) = (self.rule_index(charge), key.fingerprint);
        self.charge_records.push(ChargeRecord { reading_index, rule, counter, fingerprint, cost });
    }

    /// Takes the receipt for those charges made so far that `which` selects.
    pub(crate) fn take_receipt(
        &mut self,
        rules: &Arc<RuleSet>,
        which: impl Fn(&Charge<'_>) -> bool,
    ) -> Receipt {
        let mut items = SmallVec::new();
        let Self { charges, reading_indices, readings, charge_records, local_charged_at, .. } =
            self;
        charge_records.retain(|record| {
            let charge = reading_indices.iter().position(|index| *index == record.reading_index);
            let taken = charge.is_some_and(|i| which(&charges[i]));
            if taken {
                let reading = &readings[record.reading_index as usize];
                items.push(ReceiptItem::new(record, reading, *local_charged_at));
            }
            !taken
        });
        Receipt { rules: Arc::clone(rules), items }
    }

    /// The readings of all charges.
    pub(crate) fn numbers(&self) -> PlanReadings {
        let reading = |index: &u32| self.readings[*index as usize].numbers.unwrap_or_default();
        self.reading_indices.iter().map(reading).collect()
    }

    /// Creates a plan without charges.
    pub(crate) fn empty() -> Self {
        Self {
            charges: SmallVec::new(),
            reading_indices: SmallVec::new(),
            readings: SmallVec::new(),
            refused: false,
            answered_by: AnsweredBy::Store,
            charge_records: SmallVec::new(),
            open_ended: false,
            local_charged_at: Timestamp::EPOCH,
            store_time: None,
        }
    }

    /// For each charge, the index of its reading in `readings`.
    pub(crate) fn reading_indices(&self) -> &[u32] {
        &self.reading_indices
    }

    /// Adds a charge; the caller pushes its reading next.
    fn push_charge(&mut self, charge: Charge<'a>) {
        // A rule set has at most `u32::MAX` rules.
        self.reading_indices.push(u32::try_from(self.readings.len()).unwrap_or(u32::MAX));
        self.charges.push(charge);
    }

    /// The rule-set index of a charge's rule.
    pub(crate) fn rule_index(&self, charge: usize) -> u32 {
        self.reading_of(charge).rule
    }

    /// The `on_fail` of a charge's rule.
    pub(crate) fn on_fail(&self, charge: usize, rules: &RuleSet) -> OnFail {
        // Inline limits belong to no rule, so there is no `on_fail`; the caller checks whether the
        // store answered.
        let rule = rules.get(self.rule_index(charge));
        rule.map_or(OnFail::Allow, Rule::on_fail)
    }

    /// Copies the results of this plan's charges from a merged plan; `at` holds the index of each
    /// charge there. If several plans charged the same counter, this plan records only its own
    /// cost.
    pub(crate) fn adopt_results(&mut self, whole: &ChargePlan<'_>, at: &[u32]) {
        for ((charge, index), at) in self.charges.iter().zip(&self.reading_indices).zip(at) {
            let own = &mut self.readings[*index as usize];
            let (rule, answer) = (own.rule, whole.readings[*at as usize]);
            *own = RuleReading { rule, ..answer };
            let record = whole.charge_records.iter().find(|record| record.reading_index == *at);
            if let Some(record) = record.filter(|_| charge.cost > 0) {
                self.charge_records.push(ChargeRecord {
                    reading_index: *index,
                    // The merged plan does not know the rule of an inline limit.
                    rule: if record.rule == answer.rule { rule } else { record.rule },
                    cost: charge.cost,
                    ..*record
                });
            }
        }
        (self.answered_by, self.local_charged_at) = (whole.answered_by, whole.local_charged_at);
        self.store_time = whole.store_time;
    }

    /// Converts the completed plan to a decision; `rules` must be the rule set that it was filled
    /// from.
    pub(crate) fn into_decision(self, rules: Arc<RuleSet>) -> Decision {
        let Self {
            readings,
            answered_by,
            charge_records,
            open_ended,
            local_charged_at,
            store_time,
            ..
        } = self;
        Decision {
            rules,
            readings,
            answered_by,
            charge_records,
            open_ended,
            local_charged_at,
            store_time,
        }
    }

    /// Stores the reading of one charge.
    pub(crate) fn set_reading(&mut self, charge: usize, reading: Reading) {
        let rule_reading = &mut self.readings[self.reading_indices[charge] as usize];
        (rule_reading.verdict, rule_reading.numbers) = (reading.verdict, Some(reading));
    }

    /// Sets what a charge's reading says is left.
    pub(crate) fn set_remaining(&mut self, charge: usize, remaining: u64) {
        let rule_reading = &mut self.readings[self.reading_indices[charge] as usize];
        if let Some(reading) = &mut rule_reading.numbers {
            reading.remaining = remaining;
        }
    }

    /// Indices of the charges that were made, given the readings of all of them. `op` charges all
    /// or none, except that [`Role::Always`] is always charged.
    pub(crate) fn made_charges(&self, op: Op, numbers: &[Reading]) -> impl Iterator<Item = usize> {
        let is_made = is_made(op, numbers);
        let answered = self.charges.iter().zip(numbers).enumerate();
        answered.filter(move |(_, (charge, reading))| is_made(charge, reading)).map(|(i, _)| i)
    }

    /// Stores the readings of all charges and records which were made on which counter.
    pub(crate) fn set_readings(
        &mut self,
        op: Op,
        numbers: &[Reading],
        counter: impl Fn(usize) -> Option<CounterLocation>,
    ) {
        let is_made = is_made(op, numbers);
        self.charge_records.clear();
        let charges = self.charges.iter().zip(&self.reading_indices).zip(numbers).enumerate();
        for (i, ((charge, index), reading)) in charges {
            let (rule_reading, counter) = (&mut self.readings[*index as usize], counter(i));
            (rule_reading.verdict, rule_reading.numbers) = (reading.verdict, Some(*reading));
            rule_reading.uncounted = counter.is_none();
            if op == Op::Charge
                && is_made(charge, reading)
                && let Some(counter) = counter
            {
                let (fingerprint, cost) = (charge.key.fingerprint, charge.cost);
                self.charge_records.push(ChargeRecord {
                    reading_index: *index,
                    rule: rule_reading.rule,
                    counter,
                    fingerprint,
                    cost,
                });
            }
        }
    }

    fn add_rule(
        &mut self,
        at: u32,
        rule: &'a Rule,
        keys: &mut RequestKeys<'a, '_, '_>,
        cost: u64,
        queue: QueueMode,
    ) {
        let verdict = match (rule.limit(), rule.mode()) {
            (RuleLimit::Deny { .. }, RuleMode::Shadow) => Verdict::ShadowDeny,
            (RuleLimit::Deny { .. }, _) => Verdict::Deny,
            _ => Verdict::Allow,
        };
        self.refused |= verdict.refuses();
        if let RuleLimit::Policy(policy) = rule.limit() {
            self.add_charge(rule, policy, keys.key(rule), cost, queue);
        }
        self.readings.push(RuleReading::new(at, verdict));
    }

    /// Adds a rule that has a policy, with a known key.
    pub(crate) fn add_counter(
        &mut self,
        at: u32,
        rule: &'a Rule,
        key: Key<'a>,
        cost: u64,
        queue: QueueMode,
    ) {
        if let RuleLimit::Policy(policy) = rule.limit() {
            self.add_charge(rule, policy, key, cost, queue);
        }
        self.readings.push(RuleReading::new(at, Verdict::Allow));
    }

    /// Adds a rule's charge; the caller pushes its reading next.
    #[inline]
    fn add_charge(
        &mut self,
        rule: &'a Rule,
        policy: &'a Policy,
        key: Key<'a>,
        cost: u64,
        queue: QueueMode,
    ) {
        let is_over_at_once = matches!(
            policy.meter(),
            Meter::Bucket { leak: LeakMode::Police, .. }
                | Meter::Fixed
                | Meter::Log
                | Meter::Counter(_)
        );
        self.open_ended |= !is_over_at_once || rule.cost().is_known_after_response();
        let enforced = *rule.mode() != RuleMode::Shadow;
        self.push_charge(Charge {
            key,
            policy,
            cost,
            role: match rule.charge() {
                _ if !enforced => Role::Shadow,
                ChargeWhen::Always => Role::Always,
                ChargeWhen::Admitted => Role::Enforce,
            },
            grace: rule.mode().warning_policy(),
            ban: rule.ban().filter(|_| enforced),
            queue,
            lent: NodeMode::of(rule).is_some(),
        });
    }
}

/// Returns a predicate for charges that were made, given the readings of all of them.
fn is_made(op: Op, numbers: &[Reading]) -> impl Fn(&Charge<'_>, &Reading) -> bool {
    let admitted = !numbers.iter().any(|reading| reading.verdict.refuses());
    move |charge, reading| match op {
        Op::Charge => charge.role == Role::Always || admitted && reading.verdict == Verdict::Allow,
        Op::Force => true,
        Op::Peek | Op::Refund { .. } | Op::Renew { .. } | Op::Grant(_) | Op::Reset => false,
    }
}
