//! Core matches the definitions exactly on every history: what fits, what remains, when it drains,
//! and the effects of refusals, refunds, debt and resets (I3, I11, I13, I14).

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::algorithm::{Fit, Gauge};
use tidegate_core::batch::StateKind;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::history::{CounterHistory, CounterStep, StepAction, histories};
use tidegate_testkit::oracle::Oracle;
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;
use tidegate_testkit::state_table::StateTable;

type PropertyResult = Result<(), TestCaseError>;

const KEY: Key<'static> = Key::without_namespace("law", Fingerprint { hi: 1, lo: 2 });

/// One counter, both in core and as an oracle.
struct OracleFixture {
    policy: Policy,
    table: StateTable,
    oracle: Oracle,
    now: Timestamp,
    last: Reading,
    /// Charges made, with their times.
    charges: Vec<(u64, Timestamp)>,
}

impl OracleFixture {
    fn new(policy: Policy, now: Timestamp) -> Self {
        let oracle = Oracle::new(policy.algorithm(), policy.quota());
        let last = Reading { remaining: policy.limit(), now, ..Reading::default() };
        Self { policy, table: StateTable::default(), oracle, now, last, charges: Vec::new() }
    }

    fn apply_step(&mut self, step: CounterStep) -> PropertyResult {
        self.now = step.time_step.advance(&self.policy, &self.last, self.now);
        let cost = step.cost.resolve(&self.policy, &self.last);
        let (fit, gauge) = (self.fit(cost), self.gauge());
        self.oracle.confirm_fit(fit, cost, self.now).map_err(TestCaseError::fail)?;
        self.oracle.confirm_gauge(gauge, self.now).map_err(TestCaseError::fail)?;
        self.check_wait_is_sound_and_tight(fit, cost)?;
        self.last = self.apply_action(step.action, cost, fit, gauge)?;
        let left = self.gauge();
        prop_assert_eq!(
            (self.last.remaining, self.last.reset_after),
            (left.remaining, left.reset_after)
        );
        self.oracle.confirm_gauge(left, self.now).map_err(TestCaseError::fail)?;
        self.check_reset_is_stable(left)?;
        self.check_fresh_equals_absent(cost)
    }

    fn apply_action(
        &mut self,
        action: StepAction,
        cost: u64,
        fit: Fit,
        gauge: Gauge,
    ) -> Result<Reading, TestCaseError> {
        let now = self.now;
        let before = self.table.clone();
        match action {
            StepAction::Charge => {
                let reading = self.apply(Op::Charge, cost);
                check_answer(&reading, fit)?;
                if fit.is_now() {
                    self.oracle.charge(cost, now);
                    self.charges.push((cost, now));
                } else {
                    prop_assert_eq!(&before, &self.table, "a refusal changes nothing");
                }
                Ok(reading)
            }
            StepAction::Peek => {
                let reading = self.apply(Op::Peek, cost);
                check_answer(&reading, fit)?;
                prop_assert_eq!(
                    (reading.remaining, reading.reset_after),
                    (gauge.remaining, gauge.reset_after)
                );
                prop_assert_eq!(&before, &self.table, "a peek changes nothing");
                Ok(reading)
            }
            StepAction::Force => {
                self.oracle.charge(cost, now);
                self.charges.push((cost, now));
                Ok(self.apply(Op::Force, cost))
            }
            StepAction::Refund(back) => match self.charges.len().checked_sub(back + 1) {
                Some(which) => {
                    let (cost, charged_at) = self.charges.remove(which);
                    Ok(self.refund(cost, charged_at))
                }
                None => Ok(self.apply(Op::Peek, cost)),
            },
            StepAction::RefundUnknown(eighths) => {
                let ago = self.policy.quota().window.get() / 8 * eighths;
                let then = now.as_micros().saturating_sub(ago);
                Ok(self.refund(cost, Timestamp::from_micros(then)))
            }
            StepAction::Renew(back) => match self.charges.len().checked_sub(back + 1) {
                Some(which) => {
                    let (cost, charged_at) = self.charges.remove(which);
                    self.charges.push((cost, now));
                    self.oracle.renew(cost, charged_at, now);
                    Ok(self.apply(Op::Renew { charged_at }, cost))
                }
                None => Ok(self.apply(Op::Peek, cost)),
            },
            StepAction::Grant(terms) => {
                let room = gauge.remaining.checked_sub(terms.leave).filter(|room| *room >= cost);
                let granted = room.map_or(0, |room| terms.units(cost, room));
                let reading = self.apply(Op::Grant(terms), cost);
                check_answer(&reading, self.fit_before(&before, cost.saturating_add(terms.leave)))?;
                prop_assert_eq!(
                    (reading.granted, reading.verdict.refuses()),
                    (granted, granted == 0)
                );
                if granted == 0 {
                    prop_assert_eq!(&before, &self.table, "a refusal changes nothing");
                } else {
                    self.oracle.charge(granted.into(), now);
                    self.charges.push((granted.into(), now));
                }
                Ok(reading)
            }
            StepAction::Reset => {
                self.oracle.reset();
                self.charges.clear();
                let reading = self.apply(Op::Reset, cost);
                prop_assert_eq!(self.table.state(KEY.fingerprint, StateKind::Main), None);
                Ok(reading)
            }
        }
    }

    fn refund(&mut self, cost: u64, charged_at: Timestamp) -> Reading {
        self.oracle.refund(cost, charged_at, self.now);
        self.apply(Op::Refund { charged_at }, cost)
    }

    fn apply(&mut self, op: Op, cost: u64) -> Reading {
        let policy = &self.policy;
        let charge = Charge::plain(KEY, policy, cost);
        self.table.apply_one(op, &charge, self.now)
    }

    fn fit(&self, cost: u64) -> Fit {
        self.fit_at(cost, self.now)
    }

    fn fit_at(&self, cost: u64, at: Timestamp) -> Fit {
        self.policy.fit(self.table.state(KEY.fingerprint, StateKind::Main), cost, at)
    }

    fn fit_before(&self, before: &StateTable, cost: u64) -> Fit {
        self.policy.fit(before.state(KEY.fingerprint, StateKind::Main), cost, self.now)
    }

    fn gauge(&self) -> Gauge {
        self.policy.gauge(self.table.state(KEY.fingerprint, StateKind::Main), self.now)
    }

    /// I11: core admits the cost at the end of the wait, and not a microsecond earlier. For slots
    /// the wait is unknown.
    fn check_wait_is_sound_and_tight(&self, fit: Fit, cost: u64) -> PropertyResult {
        prop_assert_eq!(fit == Fit::Never, cost > self.policy.limit());
        if let Fit::After(wait) = fit
            && !self.policy.is_concurrency()
        {
            let then = self.now.plus(wait);
            let just_before = Timestamp::from_micros(then.as_micros() - 1);
            prop_assert!(self.fit_at(cost, then).is_now(), "sound");
            prop_assert_eq!(self.fit_at(cost, just_before), Fit::After(Micros::new(1)), "tight");
        }
        Ok(())
    }

    /// I13: the reset time of a used fixed window is always the end of its epoch-aligned window.
    fn check_reset_is_stable(&self, left: Gauge) -> PropertyResult {
        if self.policy.algorithm() == Algorithm::FixedWindow && left.reset_after > Micros::ZERO {
            let window = self.policy.quota().window.get();
            let end = (self.now.as_micros() / window + 1) * window;
            prop_assert_eq!(self.now.plus(left.reset_after).as_micros(), end);
        }
        Ok(())
    }

    /// I14: from its `expires_at` on, a state is equivalent to an absent one, and not a microsecond
    /// earlier.
    fn check_fresh_equals_absent(&self, cost: u64) -> PropertyResult {
        let Some(state) = self.table.state(KEY.fingerprint, StateKind::Main) else { return Ok(()) };
        let fresh = state.expires_at().max(self.now);
        let horizon = self.now.plus(Micros::new(2 * self.policy.period().get() + 1));
        prop_assert!(fresh <= horizon, "finite: {:?}", fresh);
        prop_assert_eq!(self.policy.gauge(Some(state), fresh), self.policy.gauge(None, fresh));
        for cost in [1, cost, self.policy.limit()] {
            prop_assert_eq!(self.fit_at(cost, fresh), self.policy.fit(None, cost, fresh));
        }
        if fresh > self.now {
            let sooner = Timestamp::from_micros(fresh.as_micros() - 1);
            prop_assert_ne!(
                self.policy.gauge(Some(state), sooner),
                self.policy.gauge(None, sooner)
            );
        }
        Ok(())
    }

    /// Compares with the oracle's answers, found by search alone.
    fn check_search_agrees(&self, cost: u64) -> PropertyResult {
        prop_assert_eq!(self.fit(cost), self.oracle.fit(cost, self.now));
        prop_assert_eq!(self.gauge(), self.oracle.gauge(self.now));
        Ok(())
    }
}

fn check_answer(reading: &Reading, fit: Fit) -> PropertyResult {
    let expected = match fit {
        Fit::Now { delay } => (Verdict::Allow, Retry::Now, delay),
        Fit::After(wait) => (Verdict::Deny, Retry::After(wait), Micros::ZERO),
        Fit::Never => (Verdict::Deny, Retry::Never, Micros::ZERO),
    };
    prop_assert_eq!((reading.verdict, reading.retry, reading.delay), expected);
    Ok(())
}

fn check_definition(name: &str, algorithm: Algorithm) {
    let strategy = (quotas::exact_policies(algorithm), histories(20));
    check_property(name, cases(), &strategy, |(policy, CounterHistory { start, steps })| {
        let mut fixture = OracleFixture::new(policy, start);
        for step in &steps {
            fixture.apply_step(*step)?;
        }
        let last = steps.last().map_or(1, |step| step.cost.resolve(&policy, &fixture.last));
        fixture.check_search_agrees(last)
    });
}

#[test]
fn token_bucket_equals_its_definition() {
    check_definition("token_bucket", Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_policing_equals_its_definition() {
    check_definition("leaky_bucket_police", Algorithm::LeakyBucket(LeakMode::Police));
}

#[test]
fn leaky_bucket_queueing_equals_its_definition() {
    check_definition("leaky_bucket_queue", Algorithm::LeakyBucket(LeakMode::Queue));
}

#[test]
fn fixed_window_equals_its_definition() {
    check_definition("fixed_window", Algorithm::FixedWindow);
}

#[test]
fn sliding_window_log_equals_its_definition() {
    check_definition("sliding_window_log", Algorithm::SlidingWindowLog);
}

#[test]
fn sliding_window_counter_equals_its_definition() {
    check_definition("sliding_window_counter", Algorithm::SlidingWindowCounter);
}

#[test]
fn concurrent_equals_its_definition() {
    check_definition("concurrent", Algorithm::Concurrent);
}
