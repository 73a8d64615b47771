//! Batches: all rules or none are charged, across rules of different algorithms. Also checks the
//! effects of shadow, always-charged, warning and banning rules on the request and on the counters.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::ban_oracle::{BanOracle, BanParameters};
use tidegate_testkit::history::{CounterStep, StepAction, histories};
use tidegate_testkit::oracle::Oracle;
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas::{self, ALL_ALGORITHMS};
use tidegate_testkit::state_table::StateTable;

type PropertyResult = Result<(), TestCaseError>;

/// A rule as passed to core.
#[derive(Clone, Copy, Debug)]
struct BatchRule {
    policy: Policy,
    grace: Option<Policy>,
    ban: Option<BanParameters>,
    role: Role,
}

/// The oracles of a rule.
struct RuleOracle {
    main: Oracle,
    grace: Option<Oracle>,
    ban: Option<BanOracle>,
}

fn rules() -> impl Strategy<Value = Vec<BatchRule>> {
    let rule = (0_usize..7, 0_u8..6).prop_flat_map(|(which, role)| {
        let role = match role {
            0..=3 => Role::Enforce,
            4 => Role::Shadow,
            _ => Role::Always,
        };
        let policy = small_policies(ALL_ALGORITHMS[which]);
        (
            policy,
            proptest::option::of(small_policies(Algorithm::FixedWindow)),
            proptest::option::of(bans()),
        )
            .prop_map(move |(policy, grace, ban)| BatchRule { policy, grace, ban, role })
    });
    prop::collection::vec(rule, 1..=4)
}

/// Limits small enough for several rules to reach them in one history.
fn small_policies(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    (1_u64..8, 1_u64..40).prop_map(move |(requests, window)| {
        let quota = Quota::new(requests, Micros::new(window * 100));
        Policy::new(algorithm, quota).unwrap()
    })
}

fn bans() -> impl Strategy<Value = BanParameters> {
    (1_u32..4, 1_u64..3_000, 1_u64..1_000, 1_u32..4, 0_u64..4_000).prop_map(
        |(after, within, lasts, factor, longest)| BanParameters {
            after,
            within: Micros::new(within),
            lasts: Micros::new(lasts),
            factor,
            longest: Micros::new(longest),
        },
    )
}

fn ban_policy(parameters: &BanParameters) -> BanPolicy {
    let BanParameters { after, within, lasts, factor, longest } = *parameters;
    BanPolicy::new(after, within, lasts, factor, longest)
}

/// A rule's verdict on a cost, by definition.
fn expected_verdict(rule: &BatchRule, oracle: &RuleOracle, cost: u64, now: Timestamp) -> Verdict {
    let at = i128::from(now.as_micros());
    let banned = |ban: &BanOracle| ban.ban_remaining(now) > Micros::ZERO;
    match (oracle.main.fits(cost, at), rule.role) {
        (true, Role::Shadow) => Verdict::Allow,
        (false, Role::Shadow) => Verdict::ShadowDeny,
        _ if oracle.ban.as_ref().is_some_and(banned) => Verdict::Ban,
        (true, _) => Verdict::Allow,
        (false, _) if cost > rule.policy.limit() => Verdict::Deny,
        (false, _) if oracle.grace.as_ref().is_some_and(|grace| grace.fits(1, at)) => Verdict::Warn,
        (false, _) => Verdict::Deny,
    }
}

struct BatchFixture {
    rules: Vec<BatchRule>,
    oracles: Vec<RuleOracle>,
    table: StateTable,
    now: Timestamp,
    made: Vec<(Vec<u64>, Timestamp)>,
}

impl BatchFixture {
    fn new(rules: Vec<BatchRule>, now: Timestamp) -> Self {
        let oracle = |policy: &Policy| Oracle::new(policy.algorithm(), policy.quota());
        let define = |rule: &BatchRule| RuleOracle {
            main: oracle(&rule.policy),
            grace: rule.grace.as_ref().map(oracle),
            ban: rule.ban.map(BanOracle::new),
        };
        let oracles = rules.iter().map(define).collect();
        Self { rules, oracles, table: StateTable::default(), now, made: Vec::new() }
    }

    fn apply(&mut self, op: Op, costs: &[u64]) -> Vec<Reading> {
        let bans: Vec<_> =
            self.rules.iter().map(|rule| rule.ban.as_ref().map(ban_policy)).collect();
        let charge = |i: usize| Charge {
            role: self.rules[i].role,
            grace: self.rules[i].grace.as_ref(),
            ban: bans[i].as_ref(),
            ..Charge::plain(
                Key::without_namespace("law", Fingerprint { hi: 7, lo: i as u64 }),
                &self.rules[i].policy,
                costs[i],
            )
        };
        let charges: Vec<_> = (0..self.rules.len()).map(charge).collect();
        self.table.apply(op, &charges, self.now)
    }

    fn apply_step(&mut self, step: CounterStep) -> PropertyResult {
        let first = self.rules[0].policy;
        let last = Reading { remaining: 1, now: self.now, ..Reading::default() };
        self.now = step.time_step.advance(&first, &last, self.now);
        let cost = |rule: &BatchRule| step.cost.resolve(&rule.policy, &last);
        let costs: Vec<u64> = self.rules.iter().map(cost).collect();
        match step.action {
            StepAction::Charge | StepAction::RefundUnknown(_) | StepAction::Grant(_) => {
                self.charge(&costs)?;
            }
            StepAction::Peek => self.peek(&costs)?,
            StepAction::Force => {
                self.apply(Op::Force, &costs);
                let now = self.now;
                let each = self.oracles.iter_mut().zip(&costs);
                each.for_each(|(oracle, cost)| oracle.main.charge(*cost, now));
                self.made.push((costs, now));
            }
            StepAction::Refund(_) => {
                let Some((costs, charged_at)) = self.made.pop() else { return Ok(()) };
                self.apply(Op::Refund { charged_at }, &costs);
                let now = self.now;
                let each = self.oracles.iter_mut().zip(&costs);
                each.for_each(|(oracle, cost)| oracle.main.refund(*cost, charged_at, now));
            }
            StepAction::Renew(_) => {
                let Some((costs, charged_at)) = self.made.pop() else { return Ok(()) };
                self.apply(Op::Renew { charged_at }, &costs);
                let now = self.now;
                let each = self.oracles.iter_mut().zip(&costs);
                each.for_each(|(oracle, cost)| oracle.main.renew(*cost, charged_at, now));
                self.made.push((costs, now));
            }
            StepAction::Reset => {
                self.apply(Op::Reset, &costs);
                for oracle in &mut self.oracles {
                    oracle.main.reset();
                    oracle.grace.iter_mut().for_each(Oracle::reset);
                    oracle.ban.iter_mut().for_each(BanOracle::reset);
                }
                prop_assert_eq!(&self.table, &StateTable::default());
            }
        }
        Ok(())
    }

    fn expected_verdicts(&self, costs: &[u64]) -> Vec<Verdict> {
        let each = self.rules.iter().zip(&self.oracles).zip(costs);
        each.map(|((rule, oracle), cost)| expected_verdict(rule, oracle, *cost, self.now)).collect()
    }

    fn charge(&mut self, costs: &[u64]) -> PropertyResult {
        let expected = self.expected_verdicts(costs);
        let admitted = !expected.iter().any(|verdict| verdict.refuses());
        let before = self.table.clone();
        let readings = self.apply(Op::Charge, costs);
        let verdicts: Vec<_> = readings.iter().map(|reading| reading.verdict).collect();
        prop_assert_eq!(&verdicts, &expected);
        self.check_waits(&readings)?;
        let plain = |rule: &BatchRule| rule.role != Role::Always && rule.ban.is_none();
        if !admitted && self.rules.iter().all(plain) {
            prop_assert_eq!(&before, &self.table, "all or none");
        }
        for (i, verdict) in expected.into_iter().enumerate() {
            let (rule, oracle) = (&self.rules[i], &mut self.oracles[i]);
            if (admitted && verdict == Verdict::Allow) || rule.role == Role::Always {
                oracle.main.charge(costs[i], self.now);
            }
            match (verdict, &mut oracle.grace, &mut oracle.ban) {
                (Verdict::Warn, Some(grace), _) if admitted => grace.charge(1, self.now),
                (Verdict::Deny, _, Some(ban)) => ban.record_refusal(self.now),
                _ => {}
            }
            let left = tidegate_core::algorithm::Gauge {
                remaining: readings[i].remaining,
                reset_after: readings[i].reset_after,
                next_after: readings[i].next_after,
            };
            oracle.main.confirm_gauge(left, self.now).map_err(TestCaseError::fail)?;
        }
        if admitted {
            self.made.push((costs.to_vec(), self.now));
        }
        Ok(())
    }

    fn peek(&mut self, costs: &[u64]) -> PropertyResult {
        let (expected, before) = (self.expected_verdicts(costs), self.table.clone());
        let readings = self.apply(Op::Peek, costs);
        let verdicts: Vec<_> = readings.iter().map(|reading| reading.verdict).collect();
        prop_assert_eq!(verdicts, expected);
        prop_assert_eq!(&before, &self.table, "a peek changes nothing");
        self.check_waits(&readings)
    }

    /// Checks retry times: a ban's is at least the rest of the ban, and every refusal has one.
    fn check_waits(&self, readings: &[Reading]) -> PropertyResult {
        for (reading, oracle) in readings.iter().zip(&self.oracles) {
            match (reading.verdict, reading.retry) {
                (Verdict::Ban, Retry::After(wait)) => {
                    let ban = oracle.ban.as_ref().map(|ban| ban.ban_remaining(self.now));
                    prop_assert!(Some(wait) >= ban);
                }
                (Verdict::Allow, retry) => prop_assert_eq!(retry, Retry::Now),
                (_, retry) => prop_assert_ne!(retry, Retry::Now),
            }
        }
        Ok(())
    }
}

#[test]
fn batch_charges_all_rules_or_none() {
    let plain = rules().prop_map(|mut rules| {
        rules.iter_mut().for_each(|rule| (rule.grace, rule.ban) = (None, None));
        rules
    });
    check_property("batch", cases(), &(plain, histories(16)), |(rules, history)| {
        let mut batch = BatchFixture::new(rules, history.start);
        history.steps.iter().try_for_each(|step| batch.apply_step(*step))
    });
}

#[test]
fn warnings_and_bans_follow_refusals() {
    check_property("penalties", cases(), &(rules(), histories(24)), |(rules, history)| {
        let mut batch = BatchFixture::new(rules, history.start);
        history.steps.iter().try_for_each(|step| batch.apply_step(*step))
    });
}

/// Caddy, APISIX, Kong and Envoy charge the first rule before the second refuses.
#[test]
fn last_rule_refusal_charges_no_rule() {
    for (first, second) in
        ALL_ALGORITHMS.into_iter().flat_map(|one| ALL_ALGORITHMS.map(|other| (one, other)))
    {
        let wide = Policy::new(first, Quota::new(100, Micros::from_secs(1))).unwrap();
        let tight = Policy::new(second, Quota::new(1, Micros::from_secs(1))).unwrap();
        let charge = |lo, policy| {
            Charge::plain(Key::without_namespace("law", Fingerprint { hi: 0, lo }), policy, 1)
        };
        let (mut table, now) =
            (StateTable::default(), Timestamp::from_micros(1_700_000_000_000_000));
        let passed = (0..10)
            .map(|_| table.apply(Op::Charge, &[charge(1, &wide), charge(2, &tight)], now))
            .filter(|readings| !readings.iter().any(|reading| reading.verdict.refuses()))
            .count();
        assert_eq!(passed, 1, "{first} {second}");
        let left = table.apply_one(Op::Peek, &charge(1, &wide), now).remaining;
        assert_eq!(left, 99, "{first} {second}");
        assert!(quotas::is_exact(&wide));
    }
}

/// A rule that changes from enforce to shadow mode admits even banned keys.
#[test]
fn shadow_rule_never_refuses_banned_key() {
    let policy = Policy::new(Algorithm::TokenBucket, Quota::new(1, Micros::from_secs(60))).unwrap();
    let ban = BanPolicy::new(1, Micros::from_secs(1), Micros::from_secs(60), 1, Micros::ZERO);
    let key = Key::without_namespace("law", Fingerprint { hi: 0, lo: 1 });
    let charge = |role| Charge { role, ban: Some(&ban), ..Charge::plain(key, &policy, 1) };
    let (mut table, now) = (StateTable::default(), Timestamp::from_micros(1_700_000_000_000_000));
    for _ in 0..2 {
        table.apply_one(Op::Charge, &charge(Role::Enforce), now);
    }
    let enforced = table.apply_one(Op::Charge, &charge(Role::Enforce), now);
    assert_eq!(enforced.verdict, Verdict::Ban);
    let shadowed = table.apply_one(Op::Charge, &charge(Role::Shadow), now);
    assert_eq!(shadowed.verdict, Verdict::ShadowDeny);
}
