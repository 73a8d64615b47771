//! N threads against a limit of L admit exactly L, whichever keys they charge together.

#![allow(clippy::expect_used, reason = "a test may panic")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{START, admit, apply, charge, policy};
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Clock, ManualClock, Micros};
use tidegate_memory::{DEFAULT_MAX_BYTES, FastClock, MemoryStore};

const THREADS: usize = 8;
const ATTEMPTS: usize = 100_000;
const YEAR: Micros = Micros::from_secs(31_536_000);

/// Runs a batch from each thread repeatedly; returns how many attempts were admitted.
fn count_admitted<C: Clock>(
    store: &MemoryStore<C>,
    batch: &(dyn Fn(usize) -> Vec<Charge<'static>> + Sync),
) -> usize {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (start, charges) = (&start, batch(thread));
                scope.spawn(move || {
                    start.wait();
                    (0..ATTEMPTS).filter(|_| admit(store, &charges)).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn leak_policy(algorithm: Algorithm, requests: u64) -> &'static tidegate_core::policy::Policy {
    Box::leak(Box::new(policy(algorithm, requests, YEAR)))
}

#[test]
fn one_rule_admits_exactly_its_limit() {
    for algorithm in Algorithm::ALL {
        for limit in [1, 7, 100, 10_000] {
            let store = MemoryStore::with_clock(ManualClock::new(START), DEFAULT_MAX_BYTES);
            let policy = leak_policy(algorithm, limit);
            let admitted = count_admitted(&store, &|_| vec![charge("rule", 1, policy)]);
            assert_eq!(admitted as u64, limit, "{algorithm}");
        }
    }
}

/// All threads take, renew and release slots concurrently: the limit is never exceeded, and no slot
/// is held at the end.
#[test]
fn concurrent_slots_never_exceed_limit() {
    const SLOTS: usize = 3;
    let store = MemoryStore::with_clock(FastClock::new(), DEFAULT_MAX_BYTES);
    let slots = leak_policy(Algorithm::Concurrent, SLOTS as u64);
    let (held, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let one = [charge("rule", 1, slots)];
    let taken: usize = std::thread::scope(|scope| {
        let work = || {
            start.wait();
            let mut taken = 0;
            for _ in 0..ATTEMPTS / 10 {
                let reading = apply(&store, Op::Charge, &one)[0];
                if reading.verdict.refuses() {
                    continue;
                }
                assert!(
                    held.fetch_add(1, Ordering::SeqCst) < SLOTS,
                    "more slots are held than the limit"
                );
                taken += 1;
                let renewed = apply(&store, Op::Renew { charged_at: reading.now }, &one)[0];
                held.fetch_sub(1, Ordering::SeqCst);
                apply(&store, Op::Refund { charged_at: renewed.now }, &one);
            }
            taken
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(taken > SLOTS, "{taken}");
    assert_eq!(apply(&store, Op::Peek, &one)[0].remaining, SLOTS as u64);
}

/// With the production clock, which is read before the locks are taken.
#[test]
fn running_clock_admits_exactly_the_limit() {
    for algorithm in
        [Algorithm::TokenBucket, Algorithm::LeakyBucket(LeakMode::Queue), Algorithm::FixedWindow]
    {
        let store = MemoryStore::with_clock(FastClock::new(), DEFAULT_MAX_BYTES);
        // A bucket of 285 per year drains one request in 30 hours.
        let policy = leak_policy(algorithm, 285);
        assert_eq!(
            count_admitted(&store, &|_| vec![charge("rule", 1, policy)]),
            285,
            "{algorithm}"
        );
    }
}

#[test]
fn tightest_of_three_rules_limits_exactly() {
    let store = MemoryStore::with_clock(ManualClock::new(START), DEFAULT_MAX_BYTES);
    let rules = [
        ("user", leak_policy(Algorithm::TokenBucket, 1_000)),
        ("endpoint", leak_policy(Algorithm::SlidingWindowCounter, 700)),
        ("global", leak_policy(Algorithm::SlidingWindowLog, 5_000)),
    ];
    let charges: Vec<_> =
        (0..).zip(rules).map(|(name, (rule, policy))| charge(rule, name, policy)).collect();
    assert_eq!(count_admitted(&store, &|_| charges.clone()), 700);
    let left: Vec<u64> =
        apply(&store, Op::Peek, &charges).iter().map(|reading| reading.remaining).collect();
    assert_eq!(left, [300, 0, 4_300], "a refused request charges no rule");
}

/// Batches with overlapping keys in different orders: no deadlock, and every key is exact.
#[test]
fn overlapping_batches_admit_exactly_their_limits() {
    for shards in [1, 2, 64] {
        let store = MemoryStore::with_shards(ManualClock::new(START), DEFAULT_MAX_BYTES, shards);
        let own = leak_policy(Algorithm::FixedWindow, 1_000);
        let shared = leak_policy(Algorithm::TokenBucket, 3_000);
        let admitted = count_admitted(&store, &|thread| {
            let mut charges =
                vec![charge("own", 100 + thread as u64, own), charge("shared", 7, shared)];
            if thread % 2 == 1 {
                charges.reverse();
            }
            charges
        });
        assert_eq!(admitted, 3_000, "{shards} shards");
        let used: u64 = (0..THREADS as u64)
            .map(|thread| apply(&store, Op::Peek, &[charge("own", 100 + thread, own)])[0])
            .map(|reading| 1_000 - reading.remaining)
            .sum();
        assert_eq!(used, 3_000, "requests refused by the shared key are not charged");
    }
}
