//! Tests of the state machine without a limiter.

#![allow(clippy::unwrap_used, reason = "test code")]

use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

use super::async_counter::{Admission, AsyncCounter, FlushOutcome};
use super::counter_view::{CounterView, overshoot};

const INTERVAL: Micros = Micros::from_millis(100);

/// Ten requests an hour, with a view of an unused counter.
fn counter_of_ten() -> AsyncCounter {
    let policy = Policy::new(Algorithm::TokenBucket, Quota::new(10, Micros::from_secs(3_600)));
    let mut counter = AsyncCounter::new(policy.unwrap(), INTERVAL, Timestamp::EPOCH);
    let unused = Reading { remaining: 10, ..Reading::default() };
    counter.on_direct_answer(unused, Timestamp::EPOCH, Timestamp::EPOCH);
    counter
}

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH.plus(Micros::from_millis(millis))
}

#[test]
fn lost_units_count_towards_part_until_next_answer() {
    let mut counter = counter_of_ten();
    assert!(matches!(counter.admit(5, 2, at(0)), Admission::Admitted(_)));
    let flush = *counter.in_flight().unwrap();
    counter.on_flushed(flush.number, FlushOutcome::Unknown, at(10));
    assert_eq!(counter.open_units(), 5);
    assert_eq!(counter.admit(1, 2, at(20)), Admission::Direct, "no new flush so soon");
    let Admission::Wait(next) = counter.admit(1, 2, at(100)) else { panic!("the part is open") };
    assert_eq!(counter.in_flight().unwrap().units, 0, "lost units are not sent again");
    let answer = Reading { remaining: 5, now: at(1), ..Reading::default() };
    counter.on_flushed(next, FlushOutcome::Answered(answer), at(101));
    assert_eq!(counter.open_units(), 0);
}

#[test]
fn failed_flush_of_idle_counter_is_not_followed_by_another() {
    let mut counter = counter_of_ten();
    counter.admit(1, 1, at(0));
    let flush = counter.flush_if_due(at(100)).unwrap();
    counter.on_flushed(flush.number, FlushOutcome::Unknown, at(110));
    assert_eq!(counter.flush_if_due(at(300)), None);
    assert!(!counter.is_in_use(at(300)));
}

#[test]
fn units_are_taken_back_only_before_they_are_sent() {
    let mut counter = counter_of_ten();
    let Admission::Admitted(first) = counter.admit(2, 1, at(0)) else { panic!("there is room") };
    let flush = counter.flush_if_due(at(100)).unwrap();
    let Admission::Admitted(second) = counter.admit(2, 1, at(101)) else { panic!("there is room") };
    assert!(!counter.take_back(2, first), "sent");
    counter.on_flushed(flush.number, FlushOutcome::NotApplied, at(102));
    assert!(counter.take_back(2, first), "put back");
    assert!(counter.take_back(2, second));
    assert_eq!(counter.open_units(), 0);
}

#[test]
fn answer_that_is_overtaken_does_not_replace_view() {
    let mut counter = counter_of_ten();
    let answer = |remaining, now| Reading {
        remaining,
        reset_after: Micros::from_secs(3_600),
        now,
        ..Reading::default()
    };
    counter.on_direct_answer(answer(3, at(20)), at(10), at(30));
    counter.on_direct_answer(answer(8, at(15)), at(12), at(31));
    assert_eq!(counter.reading(at(31)).remaining, 3);
    counter.on_direct_answer(answer(8, at(15)), at(212), at(213));
    assert_eq!(counter.reading(at(213)).remaining, 8, "the store's clock went back");
}

/// The view from before the step showed room that the flush had used, for two intervals.
#[test]
fn flush_after_store_clock_stepped_back_voids_view() {
    let mut counter = counter_of_ten();
    let answer = |remaining, now| Reading { remaining, now, ..Reading::default() };
    counter.on_direct_answer(answer(10, at(9_000)), at(0), at(1));
    assert!(matches!(counter.admit(5, 2, at(2)), Admission::Admitted(_)));
    let flush = *counter.in_flight().unwrap();
    counter.on_flushed(flush.number, FlushOutcome::Answered(answer(5, at(10))), at(3));
    assert_eq!(counter.admit(5, 2, at(4)), Admission::Direct);
}

#[test]
fn request_larger_than_part_goes_to_store() {
    let mut counter = counter_of_ten();
    assert_eq!(counter.admit(6, 2, at(0)), Admission::Direct);
    assert_eq!(counter.admit(0, 20, at(0)), Admission::Direct, "there is no part");
    assert_eq!(counter.flush_if_due(at(100)), None, "no view is needed");
    assert!(matches!(counter.admit(5, 2, at(0)), Admission::Admitted(_)));
}

/// Lost units stay open until an answer, so even a request that the store decides needs one.
#[test]
fn lost_units_make_next_flush_due() {
    let mut counter = counter_of_ten();
    counter.admit(1, 2, at(0));
    let flush = counter.flush_if_due(at(100)).unwrap();
    counter.on_flushed(flush.number, FlushOutcome::Unknown, at(110));
    assert_eq!(counter.admit(6, 2, at(120)), Admission::Direct);
    assert_eq!(counter.flush_if_due(at(199)), None);
    assert_eq!(counter.flush_if_due(at(200)).map(|flush| flush.units), Some(0));
}

#[test]
fn one_flush_at_a_time_is_sent() {
    let mut counter = counter_of_ten();
    assert_eq!(counter.flush_now(at(0)), None, "there is nothing to send");
    counter.admit(1, 1, at(0));
    assert_eq!(counter.flush_if_due(at(99)), None);
    let flush = counter.flush_now(at(99)).unwrap();
    counter.admit(2, 1, at(99));
    assert_eq!((counter.flush_if_due(at(300)), counter.flush_now(at(300))), (None, None));
    counter.on_flushed(flush.number, FlushOutcome::NotApplied, at(300));
    assert!(counter.is_in_use(at(100_000)), "three units are unsent");
    assert_eq!(counter.flush_now(at(300)).map(|flush| flush.units), Some(3));
}

#[test]
fn view_follows_only_its_policy() {
    let mut counter = counter_of_ten();
    let (ten, interval) = (*counter.policy(), Micros::from_millis(200));
    counter.follow(ten, interval);
    assert!(matches!(counter.admit(1, 1, at(0)), Admission::Admitted(_)));
    let nine = Policy::new(Algorithm::TokenBucket, Quota::new(9, Micros::from_secs(3_600)));
    counter.follow(nine.unwrap(), interval);
    assert_eq!(counter.admit(1, 1, at(0)), Admission::Direct);
    assert_eq!(counter.reading(at(0)), Reading { limit: 9, ..Reading::default() });
    assert_eq!(counter.refusal(1, at(0)).verdict, Verdict::Deny);
}

/// A view of a counter with five of ten left, a while later.
#[test]
fn reading_of_view_adds_open_units() {
    let (second, hundred) = (Micros::from_secs(1), Micros::from_millis(100));
    let now = Timestamp::from_micros(1_700_000_000_300_000);
    let answer =
        Reading { limit: 10, remaining: 5, reset_after: hundred, now, ..Reading::default() };
    for (algorithm, open_reset) in [
        (Algorithm::TokenBucket, 290),
        (Algorithm::FixedWindow, 690),
        (Algorithm::SlidingWindowLog, 1_000),
        (Algorithm::SlidingWindowCounter, 1_690),
    ] {
        let policy = Policy::new(algorithm, Quota::new(10, second)).unwrap();
        let view = CounterView::new(answer, at(0), at(1));
        let reading = |open| view.reading(&policy, open, at(11));
        let reset_after = Micros::from_millis(90);
        let later = now.plus(Micros::from_millis(10));
        let expected = |remaining, reset_after| Reading {
            limit: 10,
            remaining,
            reset_after,
            now: later,
            ..Reading::default()
        };
        let room = view.room(&policy, at(11));
        assert_eq!(reading(0), expected(room, reset_after), "{algorithm}");
        let open_reset = Micros::from_millis(open_reset);
        assert_eq!(reading(2), expected(room - 2, open_reset), "{algorithm}");
        if algorithm == Algorithm::SlidingWindowLog {
            assert_eq!(view.wait_for(&policy, 6, at(11)), reset_after);
        }
    }
}

/// The level is known to one microsecond, in which three units drain.
#[test]
fn overshoot_is_what_exceeds_capacity() {
    let policy = Policy::new(Algorithm::TokenBucket, Quota::new(3, Micros::from_secs(1))).unwrap();
    let reading = |micros, verdict| Reading {
        reset_after: Micros::new(micros),
        verdict,
        ..Reading::default()
    };
    assert_eq!(overshoot(&policy, 10, &reading(2_000_001, Verdict::Deny)), 4);
    assert_eq!(overshoot(&policy, 10, &reading(2_000_000, Verdict::Deny)), 3);
    assert_eq!(overshoot(&policy, 2, &reading(2_000_000, Verdict::Deny)), 2);
    assert_eq!(overshoot(&policy, 10, &reading(2_000_000, Verdict::Allow)), 0);
}
