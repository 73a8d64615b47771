//! A changed limit keeps what is used: told in whole requests on the new scale, never refilled by the
//! change, drained at the old rate until the change and at the new one after.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::algorithm::{Fit, State};
use tidegate_core::batch::Part;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::history::{Hop, Move, histories};
use tidegate_testkit::oracle::{Exact, Oracle};
use tidegate_testkit::property::{cases, holds};
use tidegate_testkit::quotas;
use tidegate_testkit::table::Table;

type Checked = Result<(), TestCaseError>;

const KEY: Key<'static> = Key::alone("law", Fingerprint { hi: 1, lo: 2 });

/// A change of a rule: the moves under the rule as it was, then how its numbers change.
#[derive(Clone, Debug)]
struct Change {
    moves: Vec<Move>,
    requests: (u64, u64),
    burst: Option<u64>,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let times = prop_oneof![Just((1, 1)), (1_u64..12, 1_u64..12), (1_u64..=1000, Just(1))];
    let burst = proptest::option::of(1_u64..50);
    let change = (histories(8), times, burst).prop_map(|(history, requests, burst)| Change {
        moves: history.moves,
        requests,
        burst,
    });
    prop::collection::vec(change, 1..4)
}

struct Reloaded {
    policy: Policy,
    table: Table,
    oracle: Oracle,
    now: Timestamp,
    last: Reading,
}

impl Reloaded {
    /// Charges what fits, and now and then what does not.
    fn play(&mut self, step: Move) -> Checked {
        self.now = step.hop.from(&self.policy, &self.last, self.now);
        let cost = step.cost.number(&self.policy, &self.last);
        let fit = self.policy.fit(self.state(), cost, self.now);
        self.oracle.confirm_fit(fit, cost, self.now).map_err(TestCaseError::fail)?;
        let op = if matches!(step.hop, Hop::Ticks(_)) { Op::Force } else { Op::Charge };
        self.apply(op, cost, fit)
    }

    /// Done as a store does it, which has its own shorter way for the commonest charge.
    fn apply(&mut self, op: Op, cost: u64, fit: Fit) -> Checked {
        if fit.is_now() || op == Op::Force {
            self.oracle.charge(cost, self.now);
        }
        let policy = self.policy;
        let charge = Charge::plain(KEY, &policy, cost);
        let told = self.table.apply_one(op, &charge, self.now);
        let expected = match fit {
            Fit::Now { .. } => Retry::Now,
            Fit::After(wait) => Retry::After(wait),
            Fit::Never => Retry::Never,
        };
        prop_assert_eq!(told.retry, expected);
        let left = told.left();
        prop_assert_eq!(left, self.policy.gauge(self.state(), self.now));
        self.agrees()
    }

    fn state(&self) -> Option<&State> {
        self.table.state(KEY.fingerprint, Part::Main)
    }

    fn agrees(&mut self) -> Checked {
        let left = self.policy.gauge(self.state(), self.now);
        self.oracle.confirm_gauge(left, self.now).map_err(TestCaseError::fail)?;
        self.last.remaining = left.remaining;
        (self.last.reset_after, self.last.now) = (left.reset_after, self.now);
        prop_assert!(left.remaining <= self.policy.limit(), "fuller than an absent one");
        Ok(())
    }

    fn reload(&mut self, change: &Change) -> Checked {
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
        self.policy = policy.in_force_since(self.now);
        self.oracle.reload(&quota, self.now);
        let left = self.policy.gauge(self.state(), self.now).remaining;
        let room = (Exact::from_integer(policy.limit().into()) - used).floor().to_integer();
        prop_assert_eq!(i128::from(left), room.max(0), "used quota is kept");
        // Looked at later, with nothing written in between, it is still the old rate until the change.
        // Only a state that would be equal to fresh by then, had nothing changed, may be gone.
        let lasts = self.state().map_or(0, |state| state.fresh_at().since(self.now).get());
        let later = self.now.plus(Micros::new((old.window.get() / 3).min(lasts.saturating_sub(1))));
        let left = self.policy.gauge(self.state(), later);
        self.oracle.confirm_gauge(left, later).map_err(TestCaseError::fail)?;
        // A state says on one scale what is used; two changes with nothing written in between would
        // need two. So that each is seen, something is written.
        self.now = later;
        self.apply(Op::Charge, 1, self.policy.fit(self.state(), 1, later))?;
        self.apply(Op::Force, 1, self.policy.fit(self.state(), 1, later))
    }
}

fn keeps_what_is_used(name: &str, algorithm: Algorithm) {
    let strategy = (quotas::exact(algorithm), any::<u32>(), changes());
    holds(name, cases(), &strategy, |(policy, start, changes)| {
        let now = Timestamp::from_micros(u64::from(start));
        let oracle = Oracle::new(algorithm, policy.quota());
        let last = Reading { remaining: policy.limit(), now, ..Reading::default() };
        let mut reloaded = Reloaded { policy, table: Table::default(), oracle, now, last };
        for change in &changes {
            change.moves.iter().try_for_each(|step| reloaded.play(*step))?;
            reloaded.reload(change)?;
        }
        Ok(())
    });
}

#[test]
fn a_bucket_keeps_what_is_used_and_its_old_rate_until_the_change() {
    keeps_what_is_used("reload_bucket", Algorithm::TokenBucket);
}

#[test]
fn a_fixed_window_keeps_what_is_used() {
    keeps_what_is_used("reload_fixed_window", Algorithm::FixedWindow);
}

#[test]
fn a_sliding_log_keeps_what_is_used() {
    keeps_what_is_used("reload_sliding_log", Algorithm::SlidingWindowLog);
}

#[test]
fn a_sliding_counter_keeps_what_is_used() {
    keeps_what_is_used("reload_sliding_counter", Algorithm::SlidingWindowCounter);
}

#[test]
fn slots_stay_held_under_another_limit() {
    keeps_what_is_used("reload_concurrent", Algorithm::Concurrent);
}

/// Stores let a state expire when it is equal to fresh on the scale it was written with. Whether one
/// has done so already must not be seen; a refusal before then keeps the state, on the new scale.
#[test]
fn a_lowered_rate_forgets_a_key_that_is_not_seen_before_it_would_have_been_fresh() {
    let policy = |requests| {
        let quota = Quota::new(requests, Micros::from_secs(1)).with_burst(10);
        Policy::new(Algorithm::TokenBucket, quota).unwrap()
    };
    let (start, second) = (Timestamp::from_micros(1_000_000), Micros::from_secs(1));
    let mut state = None;
    policy(10).charge(&mut state, 10, start);
    let lowered = policy(1).in_force_since(start);
    let fresh = start.plus(second);
    assert_eq!(lowered.gauge(state.as_ref(), fresh.minus(Micros::new(1))).remaining, 0);
    assert_eq!(lowered.gauge(state.as_ref(), fresh), lowered.gauge(None, fresh));
    lowered.rebase(state.as_mut().unwrap(), fresh.minus(Micros::new(1)));
    assert_eq!(lowered.gauge(state.as_ref(), fresh).remaining, 1);
    assert_eq!(state.unwrap().fresh_at(), start.plus(Micros::from_secs(10)));
}

/// A bucket that keeps what is left instead would hold 20 of 10 here.
#[test]
fn raising_and_lowering_a_limit_makes_no_key_fuller_than_an_absent_one() {
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

/// 10 of 10 used; half drained at 1000/s; then the rule is lowered to 1/s and the 10 are refunded.
/// Only 5 of them were still in the bucket: the other 5 in it are somebody else's.
#[test]
fn a_refund_of_a_charge_from_before_a_change_gives_back_no_more_than_is_left_of_it() {
    let rate = |requests| {
        let quota = Quota::new(requests, Micros::from_secs(1)).with_burst(10);
        Policy::new(Algorithm::TokenBucket, quota).unwrap()
    };
    let (start, mut state) = (Timestamp::from_micros(1_000_000_000), None);
    let change = start.plus(Micros::from_millis(5));
    rate(1_000).charge(&mut state, 10, start);
    rate(1_000).charge(&mut state, 5, change);
    let slow = rate(1).in_force_since(change);
    assert_eq!(slow.gauge(state.as_ref(), change).remaining, 0);
    slow.refund(&mut state, 10, start, change);
    assert!(slow.gauge(state.as_ref(), change).remaining <= 5);
}

/// A debt cap that is applied anew at each reading told everyone 200 ms, for ten seconds.
#[test]
fn the_wait_told_after_a_burst_was_lowered_is_kept() {
    let rate = Quota::new(10, Micros::from_secs(1));
    let (start, mut state) = (Timestamp::from_micros(1_000_000_000), None);
    let wide = Policy::new(Algorithm::TokenBucket, rate.with_burst(100)).unwrap();
    wide.charge(&mut state, 100, start);
    let narrow = Policy::new(Algorithm::TokenBucket, rate.with_burst(1)).unwrap();
    let narrow = narrow.in_force_since(start);
    let Fit::After(wait) = narrow.fit(state.as_ref(), 1, start) else { panic!("it is full") };
    assert!(narrow.fit(state.as_ref(), 1, start.plus(wait)).is_now(), "told to wait {wait}");
}
