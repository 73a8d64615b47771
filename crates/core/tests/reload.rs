//! A changed limit keeps usage: it is converted to the new units in whole requests, is never
//! refilled by the change, and drains at the old rate until the change and at the new rate after
//! it.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::algorithm::{Fit, State};
use tidegate_core::batch::StateKind;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::history::{CounterStep, TimeStep, histories};
use tidegate_testkit::oracle::{ExactRatio, Oracle};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;
use tidegate_testkit::state_table::StateTable;

type PropertyResult = Result<(), TestCaseError>;

const KEY: Key<'static> = Key::without_namespace("law", Fingerprint { hi: 1, lo: 2 });

/// A rule change: the steps under the old rule, then the change of its quota.
#[derive(Clone, Debug)]
struct RuleChange {
    steps: Vec<CounterStep>,
    requests: (u64, u64),
    burst: Option<u64>,
}

fn rule_changes() -> impl Strategy<Value = Vec<RuleChange>> {
    let times = prop_oneof![Just((1, 1)), (1_u64..12, 1_u64..12), (1_u64..=1000, Just(1))];
    let burst = proptest::option::of(1_u64..50);
    let change = (histories(8), times, burst).prop_map(|(history, requests, burst)| RuleChange {
        steps: history.steps,
        requests,
        burst,
    });
    prop::collection::vec(change, 1..4)
}

struct ReloadFixture {
    policy: Policy,
    table: StateTable,
    oracle: Oracle,
    now: Timestamp,
    last: Reading,
}

impl ReloadFixture {
    /// Charges what fits, and occasionally forces what does not.
    fn apply_step(&mut self, step: CounterStep) -> PropertyResult {
        self.now = step.time_step.advance(&self.policy, &self.last, self.now);
        let cost = step.cost.resolve(&self.policy, &self.last);
        let fit = self.policy.fit(self.state(), cost, self.now);
        self.oracle.confirm_fit(fit, cost, self.now).map_err(TestCaseError::fail)?;
        let op = if matches!(step.time_step, TimeStep::Ticks(_)) { Op::Force } else { Op::Charge };
        self.apply(op, cost, fit)
    }

    /// Applies the operation through the table, which has a fast path for the most common charge.
    fn apply(&mut self, op: Op, cost: u64, fit: Fit) -> PropertyResult {
        if fit.is_now() || op == Op::Force {
            self.oracle.charge(cost, self.now);
        }
        let policy = self.policy;
        let charge = Charge::plain(KEY, &policy, cost);
        let reading = self.table.apply_one(op, &charge, self.now);
        let expected = match fit {
            Fit::Now { .. } => Retry::Now,
            Fit::After(wait) => Retry::After(wait),
            Fit::Never => Retry::Never,
        };
        prop_assert_eq!(reading.retry, expected);
        let left = reading.gauge();
        prop_assert_eq!(left, self.policy.gauge(self.state(), self.now));
        self.check_oracle_agrees()
    }

    fn state(&self) -> Option<&State> {
        self.table.state(KEY.fingerprint, StateKind::Main)
    }

    fn check_oracle_agrees(&mut self) -> PropertyResult {
        let left = self.policy.gauge(self.state(), self.now);
        self.oracle.confirm_gauge(left, self.now).map_err(TestCaseError::fail)?;
        self.last.remaining = left.remaining;
        (self.last.reset_after, self.last.now) = (left.reset_after, self.now);
        prop_assert!(
            left.remaining <= self.policy.limit(),
            "more remaining than in an unused counter"
        );
        Ok(())
    }

    fn apply_change(&mut self, change: &RuleChange) -> PropertyResult {
        let old = *self.policy.quota();
        let (times, over) = change.requests;
        let requests = (old.requests.saturating_mul(times) / over).max(1);
        let burst = change.burst.filter(|_| self.policy.algorithm().is_bucket());
        let quota = Quota { requests, burst, ..old };
        let Ok(policy) = Policy::new(self.policy.algorithm(), quota) else { return Ok(()) };
        if !quotas::is_exact(&policy) {
            return Ok(());
        }
        let used = self.oracle.used(self.now.as_micros().into());
        let rate_changed = requests != old.requests;
        let used = if rate_changed { used.ceil() } else { used };
        self.policy = policy.with_effective_since(self.now);
        self.oracle.reload(&quota, self.now);
        let left = self.policy.gauge(self.state(), self.now).remaining;
        let room = (ExactRatio::from_integer(policy.limit().into()) - used).floor().to_integer();
        prop_assert_eq!(i128::from(left), room.max(0), "used quota is kept");
        // A later peek, with nothing written in between, still uses the old rate until the change.
        // Only a state that would have expired by then without the change may be missing.
        let lasts = self.state().map_or(0, |state| state.expires_at().since(self.now).get());
        let later = self.now.plus(Micros::new((old.window.get() / 3).min(lasts.saturating_sub(1))));
        let left = self.policy.gauge(self.state(), later);
        self.oracle.confirm_gauge(left, later).map_err(TestCaseError::fail)?;
        // A state stores its usage in one unit; two changes without a write in between would need
        // two. So write something after each change.
        self.now = later;
        self.apply(Op::Charge, 1, self.policy.fit(self.state(), 1, later))?;
        self.apply(Op::Force, 1, self.policy.fit(self.state(), 1, later))
    }
}

fn check_usage_is_kept(name: &str, algorithm: Algorithm) {
    let strategy = (quotas::exact_policies(algorithm), any::<u32>(), rule_changes());
    check_property(name, cases(), &strategy, |(policy, start, changes)| {
        let now = Timestamp::from_micros(u64::from(start));
        let oracle = Oracle::new(algorithm, policy.quota());
        let last = Reading { remaining: policy.limit(), now, ..Reading::default() };
        let mut reloaded =
            ReloadFixture { policy, table: StateTable::default(), oracle, now, last };
        for change in &changes {
            change.steps.iter().try_for_each(|step| reloaded.apply_step(*step))?;
            reloaded.apply_change(change)?;
        }
        Ok(())
    });
}

#[test]
fn reloaded_bucket_keeps_usage_and_old_rate() {
    check_usage_is_kept("reload_bucket", Algorithm::TokenBucket);
}

#[test]
fn reloaded_fixed_window_keeps_usage() {
    check_usage_is_kept("reload_fixed_window", Algorithm::FixedWindow);
}

#[test]
fn reloaded_sliding_log_keeps_usage() {
    check_usage_is_kept("reload_sliding_log", Algorithm::SlidingWindowLog);
}

#[test]
fn reloaded_sliding_counter_keeps_usage() {
    check_usage_is_kept("reload_sliding_counter", Algorithm::SlidingWindowCounter);
}

#[test]
fn slots_stay_held_after_limit_change() {
    check_usage_is_kept("reload_concurrent", Algorithm::Concurrent);
}

/// Stores drop a state when it has expired by the units it was written in. Whether a store has done
/// so must not be observable. A refusal before that time keeps the state, in the new units.
#[test]
fn lowered_rate_forgets_already_fresh_key() {
    let policy = |requests| {
        let quota = Quota::new(requests, Micros::from_secs(1)).with_burst(10);
        Policy::new(Algorithm::TokenBucket, quota).unwrap()
    };
    let (start, second) = (Timestamp::from_micros(1_000_000), Micros::from_secs(1));
    let mut state = None;
    policy(10).charge(&mut state, 10, start);
    let lowered = policy(1).with_effective_since(start);
    let fresh = start.plus(second);
    assert_eq!(lowered.gauge(state.as_ref(), fresh.minus(Micros::new(1))).remaining, 0);
    assert_eq!(lowered.gauge(state.as_ref(), fresh), lowered.gauge(None, fresh));
    lowered.rebase(state.as_mut().unwrap(), fresh.minus(Micros::new(1)));
    assert_eq!(lowered.gauge(state.as_ref(), fresh).remaining, 1);
    assert_eq!(state.unwrap().expires_at(), start.plus(Micros::from_secs(10)));
}

/// A bucket that stored the remaining amount instead would hold 20 of 10 here.
#[test]
fn limit_changes_never_overfill_a_key() {
    let policy = |requests| {
        let quota = Quota::new(requests, Micros::from_secs(1));
        Policy::new(Algorithm::TokenBucket, quota).unwrap()
    };
    let mut state = None;
    let now = Timestamp::from_micros(1_000_000);
    policy(10).charge(&mut state, 5, now);
    for requests in [1_000, 10, 7, 1_000, 10] {
        policy(requests).charge(&mut state, 1, now);
    }
    assert_eq!(policy(10).gauge(state.as_ref(), now).remaining, 0);
    assert_eq!(policy(20).gauge(state.as_ref(), now).remaining, 10);
}

/// 10 of 10 are used and half drain at 1000/s; then the rate is lowered to 1/s and the 10 are
/// refunded. Only 5 of them were still in the bucket; the other 5 belong to another request.
#[test]
fn refund_across_change_returns_only_undrained_cost() {
    let rate = |requests| {
        let quota = Quota::new(requests, Micros::from_secs(1)).with_burst(10);
        Policy::new(Algorithm::TokenBucket, quota).unwrap()
    };
    let (start, mut state) = (Timestamp::from_micros(1_000_000_000), None);
    let change = start.plus(Micros::from_millis(5));
    rate(1_000).charge(&mut state, 10, start);
    rate(1_000).charge(&mut state, 5, change);
    let slow = rate(1).with_effective_since(change);
    assert_eq!(slow.gauge(state.as_ref(), change).remaining, 0);
    slow.refund(&mut state, 10, start, change);
    assert!(slow.gauge(state.as_ref(), change).remaining <= 5);
}

/// Regression test: a debt cap applied at every reading returned a wait of 200 ms for ten seconds.
#[test]
fn wait_stays_sound_after_burst_decrease() {
    let rate = Quota::new(10, Micros::from_secs(1));
    let (start, mut state) = (Timestamp::from_micros(1_000_000_000), None);
    let wide = Policy::new(Algorithm::TokenBucket, rate.with_burst(100)).unwrap();
    wide.charge(&mut state, 100, start);
    let narrow = Policy::new(Algorithm::TokenBucket, rate.with_burst(1)).unwrap();
    let narrow = narrow.with_effective_since(start);
    let Fit::After(wait) = narrow.fit(state.as_ref(), 1, start) else {
        panic!("the bucket must be full")
    };
    assert!(narrow.fit(state.as_ref(), 1, start.plus(wait)).is_now(), "not admitted after {wait}");
}
