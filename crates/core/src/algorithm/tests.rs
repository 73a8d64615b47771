//! Tests for states that were written with another rate or window, before a rule was edited.

use super::*;
use crate::batch::PlainBucket;
use crate::key::{Fingerprint, Key};
use crate::policy::Algorithm;
use crate::quota::Quota;
use crate::store::Charge;

const T0: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const HOUR: Micros = Micros::from_secs(3_600);
const DAY: Micros = Micros::from_secs(86_400);

fn policy_of_ten(algorithm: Algorithm, window: Micros) -> Policy {
    Policy::new(algorithm, Quota::new(10, window)).unwrap().with_effective_since(T0)
}

fn state_after_charge(policy: &Policy, cost: u64) -> Option<State> {
    let mut state = None;
    policy.charge(&mut state, cost, T0);
    state
}

#[test]
fn log_with_other_window_is_read() {
    let (hour, day) = (
        policy_of_ten(Algorithm::SlidingWindowLog, HOUR),
        policy_of_ten(Algorithm::SlidingWindowLog, DAY),
    );
    let mut state = state_after_charge(&hour, 3);
    day.charge(&mut state, 1, T0);
    assert_eq!(day.gauge(state.as_ref(), T0).remaining, 6);
    day.refund(&mut state, 2, T0, T0);
    assert_eq!(hour.gauge(state.as_ref(), T0).remaining, 8);
}

#[test]
fn concurrency_limit_reads_no_log() {
    let log = policy_of_ten(Algorithm::SlidingWindowLog, HOUR);
    let slots = policy_of_ten(Algorithm::Concurrent, HOUR);
    let mut state = state_after_charge(&log, 3);
    assert_eq!(slots.gauge(state.as_ref(), T0).remaining, 10);
    slots.charge(&mut state, 1, T0);
    assert_eq!(slots.gauge(state.as_ref(), T0).remaining, 9);
    assert_eq!(log.gauge(state.as_ref(), T0).remaining, 10);
}

#[test]
fn refund_ignores_other_window_length() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter] {
        let (hour, day) = (policy_of_ten(algorithm, HOUR), policy_of_ten(algorithm, DAY));
        let (mut state, before) = (state_after_charge(&hour, 5), state_after_charge(&hour, 5));
        day.refund(&mut state, 2, T0, T0);
        assert_eq!(state, before, "{algorithm}");
        hour.refund(&mut state, 2, T0, T0);
        assert_eq!(hour.gauge(state.as_ref(), T0).remaining, 7, "{algorithm}");
    }
}

#[test]
fn refund_applies_after_bucket_rate_change() {
    let (hour, day) =
        (policy_of_ten(Algorithm::TokenBucket, HOUR), policy_of_ten(Algorithm::TokenBucket, DAY));
    let mut state = state_after_charge(&hour, 5);
    day.refund(&mut state, 2, T0, T0);
    assert_eq!(day.gauge(state.as_ref(), T0).remaining, 7);
}

/// Most charges use this fast path. Without it the decisions are the same, but slower.
#[test]
fn own_scale_level_is_plain_bucket() {
    let is_plain = |policy: &Policy, level_of: &Policy| {
        let key = Key::without_namespace("r", Fingerprint::default());
        let (charge, level) = (Charge::plain(key, policy, 1), BucketLevel::empty(T0));
        PlainBucket::evaluate(&charge, level_of.scale(), level, T0).is_some()
    };
    let (hour, day) =
        (policy_of_ten(Algorithm::TokenBucket, HOUR), policy_of_ten(Algorithm::TokenBucket, DAY));
    let queue = policy_of_ten(Algorithm::LeakyBucket(LeakMode::Queue), HOUR);
    let police = policy_of_ten(Algorithm::LeakyBucket(LeakMode::Police), HOUR);
    assert!(is_plain(&hour, &hour) && is_plain(&police, &police));
    assert!(!is_plain(&hour, &day), "the level has another rate");
    assert!(!is_plain(&queue, &queue), "the policy queues");
}

/// A store may write the entries in one order and read them in another.
#[test]
fn log_from_its_entries_is_equal() {
    let policy = policy_of_ten(Algorithm::SlidingWindowLog, HOUR);
    let mut state = state_after_charge(&policy, 3);
    policy.charge(&mut state, 2, T0.plus(HOUR).minus(Micros::new(1)));
    let Some(State { tally: Tally::Log(log), .. }) = state else { panic!("the state is a log") };
    let entries: Vec<_> = log.entries().copied().collect();
    assert_eq!(entries.iter().map(|entry| entry.cost).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(WindowLog::from_entries(entries.into_iter().rev()), *log);
}
