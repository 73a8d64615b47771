//! From facts to charges: which counters a request touches, and which of them were charged.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::policy::{Leak, Meter};
use tidegate_core::store::{Charge, Op, Queue, Role};
use tidegate_rules::{ChargeWhen, Facts, Limit, Matches, Mode, OnFail, Rule, RuleSet, Whose};

use crate::decision::{Counter, Decision, Governing, Outcome, Paid, Says};
use crate::receipt::Charged;

/// What is asking of the rules that govern a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'o> {
    pub(crate) op: Op,
    /// The one rule that is asking; all where none is named.
    pub(crate) only: Option<&'o str>,
    /// Rules that are not asking, because another request of the call has one that replaces them.
    pub(crate) without: &'o [u32],
    /// What becomes of a request that a rule would let wait its turn.
    pub(crate) queue: Queue,
}

impl Asking<'_> {
    /// All rules, by somebody who can hold a request.
    pub(crate) const fn all(op: Op) -> Self {
        Self { op, only: None, without: &[], queue: Queue::Hold }
    }
}

/// What is to be done for a request, and what came of it.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    /// What the store is asking, in document order.
    pub(crate) charges: SmallVec<[Charge<'a>; 4]>,
    /// The rule of each charge, as its place in the rule set.
    rules: SmallVec<[u32; 4]>,
    /// A rule refuses without counting, so nothing may be charged.
    pub(crate) refused: bool,
    /// What came of it. The numbers of charges are filled in later.
    pub(crate) outcome: Outcome,
}

impl<'a> Plan<'a> {
    /// Plans for all rules that govern the facts, which are completed for it, or for the one that is named. A plan
    /// is filled where it lies, because it is large.
    pub(crate) fn fill(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        asking: Asking<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        // Only for as long as it takes: the plan waits for a store, and does without.
        rules.completing(facts, |facts| self.add_governing(rules, facts, asking, cost));
    }

    #[inline(never)]
    fn add_governing(
        &mut self,
        rules: &'a RuleSet,
        facts: &Facts<'_>,
        asking: Asking<'_>,
        cost: impl Fn(&Rule) -> u64,
    ) {
        let (mut matches, mut whose) = (Matches::new(), Whose::new(rules, facts));
        rules.matching(facts, &mut matches);
        for at in matches.into_iter().filter(|at| !asking.without.contains(at)) {
            let at = rules.variant(at, facts);
            let rule = &rules[at];
            if asking.only.is_none_or(|only| only == rule.id()) {
                self.add(at, rule, &mut whose, cost(rule), asking.queue);
            }
        }
    }

    /// The plan for counters that are known already.
    pub(crate) fn of(rules: &'a RuleSet, charged: &[Charged]) -> Self {
        let mut plan = Self::default();
        for Charged { rule: at, fingerprint, cost, .. } in charged {
            let rule = &rules[*at];
            let Some(policy) = rule.limit().policy() else { continue };
            plan.charge(*at, Charge::plain(rule.key(*fingerprint), policy, *cost));
        }
        plan
    }

    /// The plan for charges of several plans, each with the place of its rule.
    pub(crate) fn of_charges(charges: impl IntoIterator<Item = (Charge<'a>, u32)>) -> Self {
        let mut plan = Self::default();
        charges.into_iter().for_each(|(charge, rule)| plan.charge(rule, charge));
        plan
    }

    /// Adds a rule that counts.
    #[inline]
    fn charge(&mut self, rule: u32, charge: Charge<'a>) {
        // There are no more rules than a `u32` counts.
        let place = u32::try_from(self.charges.len()).unwrap_or(u32::MAX);
        self.charges.push(charge);
        self.rules.push(rule);
        self.outcome.numbers.push(Reading::default());
        self.outcome.governing.push(Governing { rule, says: Says::Told(place) });
    }

    /// The rule of a charge, as its place in the rule set.
    pub(crate) fn rule(&self, charge: usize) -> u32 {
        self.rules[charge]
    }

    /// What the rule of a charge says while the store is gone.
    pub(crate) fn on_fail(&self, charge: usize, rules: &RuleSet) -> OnFail {
        // A limit that was brought is no rule's; whoever asking looks whether it was answered.
        let rule = rules.get(self.rule(charge));
        rule.map_or(OnFail::Allow, Rule::on_fail)
    }

    /// Takes over what was said to its charges in a plan for several; `at` says where each is. Of what was
    /// paid for a counter that others charge too, its own part is its own.
    pub(crate) fn tell_from(&mut self, whole: &Plan<'_>, at: &[u32]) {
        let (own, whole) = (&mut self.outcome, &whole.outcome);
        for ((charge, rule), (place, at)) in self.charges.iter().zip(&self.rules).zip((0..).zip(at))
        {
            own.numbers[place as usize] = whole.numbers[*at as usize];
            if whole.governing[*at as usize].says == Says::Nothing(*at) {
                own.leave_untold(place);
            }
            let paid = whole.paid.iter().find(|paid| paid.charge == *at);
            if let Some(paid) = paid.filter(|_| charge.cost > 0) {
                let (rule, charge, cost) = (*rule, place, charge.cost);
                own.paid.push(Paid { rule, charge, cost, ..*paid });
            }
        }
        (own.answered_by, own.local_at) = (whole.answered_by, whole.local_at);
        own.store_time = whole.store_time;
    }

    /// The answer, once everything is filled in; `rules` are those it was planned under.
    pub(crate) fn decision(self, rules: Arc<RuleSet>) -> Decision {
        Decision { rules, outcome: self.outcome }
    }

    /// Somebody remembers a refusal: what does not refuse was not asked for.
    #[cold]
    pub(crate) fn tell_refusals(&mut self, by: AnsweredBy) {
        self.outcome.answered_by = by;
        for place in 0..self.charges.len() {
            if !self.outcome.numbers[place].verdict.refuses() {
                self.outcome.leave_untold(u32::try_from(place).unwrap_or(u32::MAX));
            }
        }
    }

    /// The charges that were made, as their places, once all of them are answered: `op` charges all
    /// or none, except what is charged always.
    pub(crate) fn made(&self, op: Op, numbers: &[Reading]) -> impl Iterator<Item = usize> {
        let is_made = is_made(op, numbers);
        let answered = self.charges.iter().zip(numbers).enumerate();
        answered.filter(move |(_, (charge, told))| is_made(charge, told)).map(|(i, _)| i)
    }

    /// Writes down what was charged by whom, once all charges are answered.
    pub(crate) fn pay(&mut self, op: Op, counter: impl Fn(usize) -> Option<Counter>) {
        if op != Op::Charge {
            return;
        }
        let Outcome { numbers, paid, .. } = &mut self.outcome;
        let is_made = is_made(op, numbers);
        let charges = self.charges.iter().zip(&self.rules).zip(&*numbers);
        for (place, ((charge, rule), told)) in (0..).zip(charges) {
            if is_made(charge, told)
                && let Some(counter) = counter(place as usize)
            {
                let (fingerprint, cost) = (charge.key.fingerprint, charge.cost);
                paid.push(Paid { rule: *rule, charge: place, counter, fingerprint, cost });
            }
        }
    }

    fn add(
        &mut self,
        at: u32,
        rule: &'a Rule,
        whose: &mut Whose<'a, '_, '_>,
        cost: u64,
        queue: Queue,
    ) {
        let Limit::Policy(policy) = rule.limit() else {
            let verdict = match (rule.limit(), rule.mode()) {
                (Limit::Deny, Mode::Shadow) => Verdict::ShadowDeny,
                (Limit::Deny, _) => Verdict::Deny,
                _ => Verdict::Allow,
            };
            self.refused |= verdict.refuses();
            self.outcome.governing.push(Governing { rule: at, says: Says::Verdict(verdict) });
            return;
        };
        let is_over_at_once = matches!(
            policy.meter(),
            Meter::Bucket { leak: Leak::Police, .. }
                | Meter::Fixed
                | Meter::Log
                | Meter::Counter(_)
        );
        self.outcome.open_ended |= !is_over_at_once || rule.cost().is_known_afterwards();
        let enforced = *rule.mode() != Mode::Shadow;
        let charge = Charge {
            key: whose.key(rule),
            policy,
            cost,
            role: match rule.charge() {
                _ if !enforced => Role::Shadow,
                ChargeWhen::Always => Role::Always,
                ChargeWhen::Admitted => Role::Enforce,
            },
            grace: rule.mode().warnings(),
            ban: rule.ban().filter(|_| enforced),
            queue,
        };
        self.charge(at, charge);
    }
}

impl Outcome {
    /// Forgets what a charge was told.
    fn leave_untold(&mut self, charge: u32) {
        for governing in &mut self.governing {
            if governing.says == Says::Told(charge) {
                governing.says = Says::Nothing(charge);
            }
        }
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
