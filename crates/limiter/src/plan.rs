//! From facts to charges: which counters a request touches, and which of them were charged.

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
use crate::receipt::ReceiptItem;

/// One reading for each charge of a plan.
pub(crate) type PlanReadings = SmallVec<[Reading; INLINE_CHARGES]>;

/// As many charges as most requests have; for more, memory is taken.
pub(crate) const INLINE_CHARGES: usize = 4;

/// What is asking of the rules that govern a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanOptions<'o> {
    pub(crate) op: Op,
    /// The one rule that is asking; all where none is named.
    pub(crate) only_rule: Option<&'o str>,
    /// Rules that are not asking, because another request of the call has one that replaces them.
    pub(crate) excluded_rules: &'o [u32],
    /// What becomes of a request that a rule would let wait its turn.
    pub(crate) queue: QueueMode,
}

impl PlanOptions<'_> {
    /// All rules, by somebody who can hold a request.
    pub(crate) const fn all_rules(op: Op) -> Self {
        Self { op, only_rule: None, excluded_rules: &[], queue: QueueMode::Hold }
    }
}

/// What is to be done for a request, and what came of it.
pub(crate) struct ChargePlan<'a> {
    /// What the store is asking, in document order.
    pub(crate) charges: SmallVec<[Charge<'a>; 4]>,
    /// For each charge the place of its rule's reading.
    reading_indices: SmallVec<[u32; 4]>,
    /// One for each rule in document order; those that are charged get their numbers later.
    pub(crate) readings: SmallVec<[RuleReading; 4]>,
    /// A rule refuses without counting, so nothing may be charged.
    pub(crate) refused: bool,
    /// Who answered.
    pub(crate) answered_by: AnsweredBy,
    /// What was charged.
    pub(crate) charge_records: SmallVec<[ChargeRecord; 4]>,
    /// Whether a rule queues, holds slots or waits to hear of the cost.
    pub(crate) open_ended: bool,
    /// The local clock when local buckets were told what the store had charged.
    pub(crate) local_charged_at: Timestamp,
    /// How long the store took, if that is timed.
    pub(crate) store_time: Option<Micros>,
}

impl<'a> ChargePlan<'a> {
    /// Plans for all rules that govern the facts, which are completed for it, or for the one that is named. A plan
    /// is filled where it lies, because it is large.
    pub(crate) fn fill(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        asking: PlanOptions<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        // Only for as long as it takes: the plan waits for a store, and does without.
        rules.with_enriched_facts(facts, |facts| {
            self.add_matching_rules(rules, facts, asking, cost);
        });
    }

    #[inline(never)]
    fn add_matching_rules(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        asking: PlanOptions<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        let (mut matches, mut whose) = (MatchedRules::new(), RequestKeys::new(rules, facts));
        rules.match_rules(facts, &mut matches);
        for at in matches.into_iter().filter(|at| !asking.excluded_rules.contains(at)) {
            let at = rules.variant_for(at, facts);
            let rule = &rules[at];
            if asking.only_rule.is_none_or(|only| only == rule.id()) {
                self.add_rule(at, rule, &mut whose, cost(rule), asking.queue);
            }
        }
    }

    /// The plan for counters that are known already.
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

    /// The plan for charges of several plans, each with the place of its rule.
    pub(crate) fn from_charges(charges: impl IntoIterator<Item = (Charge<'a>, u32)>) -> Self {
        let mut plan = Self::empty();
        for (charge, rule) in charges {
            plan.push_charge(charge);
            plan.readings.push(RuleReading::new(rule, Verdict::Allow));
        }
        plan
    }

    /// Nothing is to be done.
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

    /// For each charge the place of its rule's reading.
    pub(crate) fn reading_indices(&self) -> &[u32] {
        &self.reading_indices
    }

    /// Adds a charge whose reading comes next.
    fn push_charge(&mut self, charge: Charge<'a>) {
        // There are no more rules than a `u32` counts.
        self.reading_indices.push(u32::try_from(self.readings.len()).unwrap_or(u32::MAX));
        self.charges.push(charge);
    }

    /// The rule of a charge, as its place in the rule set.
    pub(crate) fn rule_index(&self, charge: usize) -> u32 {
        self.readings[self.reading_indices[charge] as usize].rule
    }

    /// What the rule of a charge says while the store is gone.
    pub(crate) fn on_fail(&self, charge: usize, rules: &RuleSet) -> OnFail {
        // A limit that was brought is no rule's; whoever asking looks whether it was answered.
        let rule = rules.get(self.rule_index(charge));
        rule.map_or(OnFail::Allow, Rule::on_fail)
    }

    /// Takes over what was said to its charges in a plan for several; `at` says where each is. Of what was
    /// paid for a counter that others charge too, its own part is its own.
    pub(crate) fn adopt_results(&mut self, whole: &ChargePlan<'_>, at: &[u32]) {
        for ((charge, place), at) in self.charges.iter().zip(&self.reading_indices).zip(at) {
            let own = &mut self.readings[*place as usize];
            *own = RuleReading { rule: own.rule, ..whole.readings[*at as usize] };
            let paid = whole.charge_records.iter().find(|paid| paid.reading_index == *at);
            if let Some(paid) = paid.filter(|_| charge.cost > 0) {
                self.charge_records.push(ChargeRecord {
                    reading_index: *place,
                    cost: charge.cost,
                    ..*paid
                });
            }
        }
        (self.answered_by, self.local_charged_at) = (whole.answered_by, whole.local_charged_at);
        self.store_time = whole.store_time;
    }

    /// The answer, once everything is filled in; `rules` are those it was planned under.
    pub(crate) fn into_decision(self, rules: Arc<RuleSet>) -> Decision {
        let Self {
            readings,
            answered_by,
            charge_records: paid,
            open_ended,
            local_charged_at: local_at,
            store_time,
            ..
        } = self;
        Decision {
            rules,
            readings,
            answered_by,
            charge_records: paid,
            open_ended,
            local_charged_at: local_at,
            store_time,
        }
    }

    /// Fills in what was said to a charge.
    pub(crate) fn set_reading(&mut self, charge: usize, told: Reading) {
        let reading = &mut self.readings[self.reading_indices[charge] as usize];
        (reading.verdict, reading.numbers) = (told.verdict, Some(told));
    }

    /// The charges that were made, as their places, once all of them are answered: `op` charges all
    /// or none, except what is charged always.
    pub(crate) fn made_charges(&self, op: Op, numbers: &[Reading]) -> impl Iterator<Item = usize> {
        let is_made = is_made(op, numbers);
        let answered = self.charges.iter().zip(numbers).enumerate();
        answered.filter(move |(_, (charge, told))| is_made(charge, told)).map(|(i, _)| i)
    }

    /// Fills in what was said to all charges, and what was charged by whom.
    pub(crate) fn set_readings(
        &mut self,
        op: Op,
        numbers: &[Reading],
        counter: impl Fn(usize) -> Option<CounterLocation>,
    ) {
        let is_made = is_made(op, numbers);
        self.charge_records.clear();
        let charges = self.charges.iter().zip(&self.reading_indices).zip(numbers).enumerate();
        for (i, ((charge, place), told)) in charges {
            let (reading, counter) = (&mut self.readings[*place as usize], counter(i));
            (reading.verdict, reading.numbers) = (told.verdict, Some(*told));
            reading.uncounted = counter.is_none();
            if op == Op::Charge
                && is_made(charge, told)
                && let Some(counter) = counter
            {
                let (fingerprint, cost) = (charge.key.fingerprint, charge.cost);
                self.charge_records.push(ChargeRecord {
                    reading_index: *place,
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
        whose: &mut RequestKeys<'a, '_, '_>,
        cost: u64,
        queue: QueueMode,
    ) {
        let verdict = match (rule.limit(), rule.mode()) {
            (RuleLimit::Deny, RuleMode::Shadow) => Verdict::ShadowDeny,
            (RuleLimit::Deny, _) => Verdict::Deny,
            _ => Verdict::Allow,
        };
        self.refused |= verdict.refuses();
        if let RuleLimit::Policy(policy) = rule.limit() {
            self.add_charge(rule, policy, whose.key(rule), cost, queue);
        }
        self.readings.push(RuleReading::new(at, verdict));
    }

    /// Adds a counter of a rule that has a policy.
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

    /// Adds the charge of a counter whose reading comes next.
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
        });
    }
}

/// Which charges were made, once all of them are answered.
fn is_made(op: Op, numbers: &[Reading]) -> impl Fn(&Charge<'_>, &Reading) -> bool {
    let admitted = !numbers.iter().any(|told| told.verdict.refuses());
    move |charge, told| match op {
        Op::Charge => charge.role == Role::Always || admitted && told.verdict == Verdict::Allow,
        Op::Force => true,
        Op::Peek | Op::Refund { .. } | Op::Renew { .. } | Op::Reset => false,
    }
}
