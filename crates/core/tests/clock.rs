//! I10: clock jumps are harmless. Bounds hold while the clock runs on. A step backwards refills
//! nothing and blocks no client for longer than one window or bucket, including bans and warnings.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::batch::StateKind;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::admission_bound::{self, TimedAdmission};
use tidegate_testkit::history::{CounterHistory, CounterStep, StepAction, charges_only, histories};
use tidegate_testkit::oracle::Oracle;
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;
use tidegate_testkit::state_table::StateTable;

type PropertyResult = Result<(), TestCaseError>;

const KEY: Key<'static> = Key::without_namespace("law", Fingerprint { hi: 1, lo: 2 });
const DAY_US: u64 = 86_400_000_000;

/// A jump of the clock.
#[derive(Clone, Copy, Debug)]
enum ClockJump {
    Back(u64),
    /// This many sixteenths of the window back.
    BackWindowPart(u64),
    Ahead(u64),
}

impl ClockJump {
    fn apply_to(self, window: u64, now: Timestamp) -> Timestamp {
        let now = now.as_micros();
        Timestamp::from_micros(match self {
            Self::Back(micros) => now.saturating_sub(micros),
            Self::BackWindowPart(sixteenths) => {
                now.saturating_sub((window / 16 * sixteenths).max(1))
            }
            Self::Ahead(micros) => now + micros,
        })
    }
}

/// Jumps, each at the index of a step, and whether the first charge after it may be admitted.
fn jumps() -> impl Strategy<Value = Vec<(usize, ClockJump, bool)>> {
    let jump = (0_u8..8, 1_u64..40).prop_map(|(kind, size)| match kind {
        0 | 1 => ClockJump::Back(DAY_US),
        2 => ClockJump::Back(size),
        3..=5 => ClockJump::BackWindowPart(size),
        6 => ClockJump::Ahead(DAY_US),
        _ => ClockJump::Ahead(size),
    });
    prop::collection::vec((0_usize..16, jump, any::<bool>()), 1..4)
}

struct ClockJumpFixture {
    policy: Policy,
    table: StateTable,
    /// Only for buckets, which match their definition across jumps. The other algorithms discard
    /// the past, and the clock may return to it.
    oracle: Option<Oracle>,
    now: Timestamp,
    last: Reading,
    in_debt: bool,
    since_last_jump_back: Vec<TimedAdmission>,
}

impl ClockJumpFixture {
    fn new(policy: Policy, now: Timestamp) -> Self {
        let is_bucket = policy.algorithm().is_bucket();
        let oracle = is_bucket.then(|| Oracle::new(policy.algorithm(), policy.quota()));
        let last = Reading { remaining: policy.limit(), now, ..Reading::default() };
        let since_last_jump_back = Vec::new();
        let table = StateTable::default();
        Self { policy, table, oracle, now, last, in_debt: false, since_last_jump_back }
    }

    fn jump(&mut self, jump: ClockJump, may_pass: bool) -> PropertyResult {
        let then = jump.apply_to(self.policy.quota().window.get(), self.now);
        let left = self.remaining(self.now);
        if then < self.now {
            prop_assert!(self.remaining(then) <= left, "a step back refilled {:?}", jump);
            self.check_bound()?;
            self.since_last_jump_back.clear();
        }
        self.now = then;
        for cost in [1, self.policy.limit()] {
            self.check_wait_is_short_and_sound(cost)?;
        }
        if let Some(oracle) = &mut self.oracle {
            oracle.rebase(then);
        }
        // Any charge moves the states to the present, whether it is admitted or refused.
        if may_pass {
            self.charge_or_force(Op::Charge, 1)?;
        } else {
            let reading = self.apply(Op::Charge, self.policy.limit() + 1);
            prop_assert_eq!(reading.retry, Retry::Never);
        }
        let state = self.table.state(KEY.fingerprint, StateKind::Main);
        let lasts = state.map_or(Micros::ZERO, |state| state.expires_at().since(self.now));
        prop_assert!(lasts.get() <= 2 * self.policy.period().get(), "used for {}", lasts);
        Ok(())
    }

    /// A request refused right after a jump must be admitted at its retry time. The wait must not
    /// exceed one window, two for the sliding window counter, or a full bucket.
    fn check_wait_is_short_and_sound(&self, cost: u64) -> PropertyResult {
        let mut table = self.table.clone();
        let charge = self.charge(cost);
        let Retry::After(wait) = table.apply_one(Op::Charge, &charge, self.now).retry else {
            return Ok(());
        };
        if let Some(hold) = self.policy.slot_hold() {
            let reading = table.apply_one(Op::Charge, &charge, self.now.plus(hold));
            prop_assert_eq!(reading.verdict, Verdict::Allow, "every hold time has ended");
            return Ok(());
        }
        let twice = self.in_debt || self.policy.algorithm() == Algorithm::SlidingWindowCounter;
        let longest = self.policy.period().get() * if twice { 2 } else { 1 };
        prop_assert!(wait.get() <= longest, "{} is longer than {}", wait.get(), longest);
        let then = self.now.plus(wait);
        let sooner = Timestamp::from_micros(then.as_micros() - 1);
        prop_assert_eq!(table.apply_one(Op::Peek, &charge, sooner).verdict, Verdict::Deny);
        prop_assert_eq!(table.apply_one(Op::Charge, &charge, then).verdict, Verdict::Allow);
        Ok(())
    }

    fn apply_step(&mut self, step: CounterStep) -> PropertyResult {
        self.now = step.time_step.advance(&self.policy, &self.last, self.now);
        let cost = step.cost.resolve(&self.policy, &self.last);
        let forced = matches!(step.action, StepAction::Force);
        self.charge_or_force(if forced { Op::Force } else { Op::Charge }, cost)
    }

    fn charge_or_force(&mut self, op: Op, cost: u64) -> PropertyResult {
        let reading = self.apply(op, cost);
        let passed = reading.verdict == Verdict::Allow;
        if passed {
            let (at, delay) = (self.now, reading.delay);
            self.since_last_jump_back.push(TimedAdmission { at, cost, delay });
        }
        let forced = op == Op::Force;
        self.in_debt |= forced;
        if let Some(oracle) = &mut self.oracle {
            prop_assert_eq!(oracle.fits(cost, self.now.as_micros().into()), passed);
            if passed || forced {
                oracle.charge(cost, self.now);
            }
            let state = self.table.state(KEY.fingerprint, StateKind::Main);
            let left = self.policy.gauge(state, self.now);
            oracle.confirm_gauge(left, self.now).map_err(TestCaseError::fail)?;
        }
        self.last = reading;
        Ok(())
    }

    fn check_bound(&self) -> PropertyResult {
        if self.in_debt {
            return Ok(());
        }
        admission_bound::check_bound(&self.policy, &self.since_last_jump_back)
            .map_err(TestCaseError::fail)
    }

    fn remaining(&self, at: Timestamp) -> u64 {
        self.policy.gauge(self.table.state(KEY.fingerprint, StateKind::Main), at).remaining
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        let policy = &self.policy;
        Charge::plain(KEY, policy, cost)
    }

    fn apply(&mut self, op: Op, cost: u64) -> Reading {
        let policy = self.policy;
        let charge = Charge::plain(KEY, &policy, cost);
        self.table.apply_one(op, &charge, self.now)
    }
}

fn check_clock_jumps(name: &str, algorithm: Algorithm) {
    let history = prop_oneof![charges_only(16), histories(16)];
    let strategy = (quotas::exact_policies(algorithm), history, jumps());
    check_property(name, cases(), &strategy, |(policy, CounterHistory { start, steps }, jumps)| {
        let mut fixture = ClockJumpFixture::new(policy, start.plus(Micros::new(2 * DAY_US)));
        for (i, step) in steps.iter().enumerate() {
            for (_, jump, may_pass) in jumps.iter().filter(|(at, ..)| *at == i) {
                fixture.jump(*jump, *may_pass)?;
            }
            fixture.apply_step(*step)?;
        }
        fixture.check_bound()
    });
}

#[test]
fn token_bucket_survives_clock_jumps() {
    check_clock_jumps("clock_token_bucket", Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_queueing_survives_clock_jumps() {
    check_clock_jumps("clock_leaky_queue", Algorithm::LeakyBucket(LeakMode::Queue));
}

#[test]
fn fixed_window_survives_clock_jumps() {
    check_clock_jumps("clock_fixed_window", Algorithm::FixedWindow);
}

#[test]
fn sliding_window_log_survives_clock_jumps() {
    check_clock_jumps("clock_sliding_log", Algorithm::SlidingWindowLog);
}

#[test]
fn sliding_window_counter_survives_clock_jumps() {
    check_clock_jumps("clock_sliding_counter", Algorithm::SlidingWindowCounter);
}

#[test]
fn slots_survive_clock_jumps() {
    check_clock_jumps("clock_concurrent", Algorithm::Concurrent);
}

/// Regression test, smallest case: half a window back, across the boundary, admitted 4 more than
/// 10.
#[test]
fn sliding_counter_keeps_usage_across_boundary_backwards() {
    let window = Micros::from_secs(1);
    let policy = Policy::new(Algorithm::SlidingWindowCounter, Quota::new(10, window)).unwrap();
    let at = |micros: u64| Timestamp::from_micros(1_700_000_000_000_000 + micros);
    let mut state = None;
    policy.charge(&mut state, 10, at(0));
    policy.charge(&mut state, 5, at(1_500_000));
    assert_eq!(policy.gauge(state.as_ref(), at(1_500_000)).remaining, 0);
    assert_eq!(policy.gauge(state.as_ref(), at(999_999)).remaining, 0, "when peeked at");
    policy.rebase(state.as_mut().unwrap(), at(999_999));
    assert_eq!(policy.gauge(state.as_ref(), at(999_999)).remaining, 0, "after a rebase");
}

fn verdict_after_day_back(
    grace: Option<&Policy>,
    ban: Option<&BanPolicy>,
    refusals: usize,
) -> Vec<Verdict> {
    let policy =
        Policy::new(Algorithm::TokenBucket, Quota::new(1, Micros::from_secs(3_600))).unwrap();
    let charge = Charge { grace, ban, ..Charge::plain(KEY, &policy, 1) };
    let (mut table, day_one) =
        (StateTable::default(), Timestamp::from_micros(1_700_000_000_000_000));
    let day_two = day_one.plus(Micros::new(DAY_US));
    for _ in 0..=refusals {
        table.apply_one(Op::Charge, &charge, day_two);
    }
    let seconds = (0..4).map(Micros::from_secs);
    seconds.map(|s| table.apply_one(Op::Charge, &charge, day_one.plus(s)).verdict).collect()
}

/// Without a rebase, a ban would end only after the clock had caught up: a ban of two seconds
/// lasted a day.
#[test]
fn ban_ends_after_clock_goes_back() {
    let ban = BanPolicy::new(2, Micros::from_secs(10), Micros::from_secs(2), 1, Micros::ZERO);
    let verdicts = verdict_after_day_back(None, Some(&ban), 2);
    assert_eq!(verdicts, [Verdict::Ban, Verdict::Ban, Verdict::Deny, Verdict::Deny]);
}

/// Without a rebase, warnings would be available again only after the clock had caught up.
#[test]
fn warnings_return_after_clock_goes_back() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindowLog] {
        let grace = Policy::new(algorithm, Quota::new(1, Micros::from_secs(2))).unwrap();
        let verdicts = verdict_after_day_back(Some(&grace), None, 2);
        let expected = [Verdict::Deny, Verdict::Deny, Verdict::Warn, Verdict::Deny];
        assert_eq!(verdicts, expected, "{algorithm}");
    }
}
