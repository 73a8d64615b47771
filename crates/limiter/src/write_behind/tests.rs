//! Tests of the state machine without a limiter, and of the seeded bug.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::decision::Reading;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_fixtures::server::{START_TIME, compile_rules};
use tidegate_rules::Facts;

use super::async_counter::{Admission, AsyncCounter, FlushOutcome};
use crate::lease::LeaseClock;
use crate::limiter::Limiter;

type TestLimiter = Limiter<FaultyStore>;

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

/// What the store has left of 100 after a flush of 5 whose answer was lost.
fn left_after_lost_answer(change: impl FnOnce(TestLimiter) -> TestLimiter) -> u64 {
    let source = "rules: [{ id: soft, key_by: global, limit: 100/h, consistency: async }]";
    let clock = ManualClock::new(START_TIME);
    let store = FaultyStore::new(Arc::new(small_store(&clock)), 1);
    let lease_clock = clock.clone();
    let lease_clock = LeaseClock::new(move || lease_clock.now());
    let limiter = Limiter::new(store.clone(), compile_rules(source).for_shared_store());
    let limiter = change(limiter.with_leases(lease_clock, 1 << 20));
    let facts = Facts::new();
    (0..6).for_each(|_| assert!(poll_ready(limiter.decide(&facts, 1)).is_allowed()));
    for fault in [StoreFault::AnswerLost, StoreFault::None] {
        store.set_fault(fault);
        clock.advance(INTERVAL);
        limiter.sweep_leases();
        while let Some(task) = limiter.pop_lease_task() {
            poll_ready(limiter.run_lease_task(task));
        }
    }
    let peek = poll_ready(limiter.peek(&facts, None, 1));
    peek.tightest().unwrap().1.numbers.unwrap().remaining
}

#[test]
fn flush_without_answer_is_not_repeated() {
    assert_eq!(left_after_lost_answer(|limiter| limiter), 94);
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn seeded_bug_sends_flush_again() {
    let bug = crate::SeededBug::FlushRepeated;
    assert_eq!(left_after_lost_answer(|limiter| limiter.with_seeded_bug(bug)), 89);
}

fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("the store answers at once"),
    }
}
