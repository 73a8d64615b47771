//! States that were written under another rate or window, which a rule's edit leaves behind.

use super::*;
use crate::batch::PlainBucket;
use crate::key::{Fingerprint, Key};
use crate::policy::Algorithm;
use crate::quota::Quota;
use crate::store::Charge;

const T0: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const HOUR: Micros = Micros::from_secs(3_600);
const DAY: Micros = Micros::from_secs(86_400);

fn ten(algorithm: Algorithm, window: Micros) -> Policy {
    Policy::new(algorithm, Quota::new(10, window)).unwrap().in_force_since(T0)
}

fn used(policy: &Policy, cost: u64) -> Option<State> {
    let mut state = None;
    policy.charge(&mut state, cost, T0);
    state
}

#[test]
fn a_log_of_another_window_is_not_added_to() {
    let (hour, day) =
        (ten(Algorithm::SlidingWindowLog, HOUR), ten(Algorithm::SlidingWindowLog, DAY));
    let mut state = used(&hour, 3);
    day.charge(&mut state, 1, T0);
    assert_eq!(day.gauge(state.as_ref(), T0).remaining, 9);
}

#[test]
fn a_window_of_another_length_is_given_nothing_back() {
    use Algorithm::{FixedWindow, SlidingWindowCounter, SlidingWindowLog};
    for algorithm in [FixedWindow, SlidingWindowCounter, SlidingWindowLog] {
        let (hour, day) = (ten(algorithm, HOUR), ten(algorithm, DAY));
        let (mut state, before) = (used(&hour, 5), used(&hour, 5));
        day.refund(&mut state, 2, T0, T0);
        assert_eq!(state, before, "{algorithm}");
        hour.refund(&mut state, 2, T0, T0);
        assert_eq!(hour.gauge(state.as_ref(), T0).remaining, 7, "{algorithm}");
    }
}

#[test]
fn a_bucket_of_another_rate_is_given_back_what_was_charged_since() {
    let (hour, day) = (ten(Algorithm::TokenBucket, HOUR), ten(Algorithm::TokenBucket, DAY));
    let mut state = used(&hour, 5);
    day.refund(&mut state, 2, T0, T0);
    assert_eq!(day.gauge(state.as_ref(), T0).remaining, 7);
}

/// Most charges take this way; without it they are decided the same, but slower.
#[test]
fn a_level_on_the_policys_own_scale_is_a_plain_bucket() {
    let look = |policy: &Policy, level_of: &Policy| {
        let key = Key::alone("r", Fingerprint::default());
        let (charge, level) = (Charge::plain(key, policy, 1), Level::empty(T0));
        PlainBucket::look(&charge, level_of.scale(), level, T0).is_some()
    };
    let (hour, day) = (ten(Algorithm::TokenBucket, HOUR), ten(Algorithm::TokenBucket, DAY));
    let line = ten(Algorithm::LeakyBucket(Leak::Queue), HOUR);
    let police = ten(Algorithm::LeakyBucket(Leak::Police), HOUR);
    assert!(look(&hour, &hour) && look(&police, &police));
    assert!(!look(&hour, &day), "another rate");
    assert!(!look(&line, &line), "a queue");
}
