//! Memory stays within its cap for any stream of keys, and a flood of keys resets no counter (I12).

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::{START, admit, apply, charge, policy};
use tidegate_core::algorithm::State;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::policy::Algorithm;
use tidegate_core::store::{Op, Store as _};
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_memory::MemoryStore;

const MAX_BYTES: u64 = 2 << 20;
const MINUTE: Micros = Micros::from_secs(60);

/// Sweeps the whole table several times: a step that removes a key visits its slot again.
fn sweep_all(store: &MemoryStore<ManualClock>) {
    for _ in 0..16 * store.sweep() {
        store.sweep();
    }
}

#[test]
fn key_flood_keeps_memory_and_counters() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_clock(clock.clone(), MAX_BYTES);
    let policy = policy(Algorithm::TokenBucket, 10, MINUTE);
    let known = charge("rule", u64::MAX, &policy);
    for _ in 0..10 {
        assert!(admit(&store, &[known]));
    }
    let mut admitted = 0;
    for name in 0..500_000 {
        admitted += u64::from(admit(&store, &[charge("rule", name, &policy)]));
        if name % 10_000 == 0 {
            assert!(!admit(&store, &[known]), "the flood reset an existing key");
        }
    }
    let usage = store.usage();
    assert!(usage.bytes <= MAX_BYTES, "{usage:?}");
    assert!(usage.overflow > 0 && usage.overflow <= 16, "{usage:?}");
    assert!(usage.keys > 30_000, "a slot takes 33 bytes: {usage:?}");
    let placed = usage.keys as u64 - 1;
    // Excludes requests refused by a bucket that other keys had exhausted.
    assert!((100_000..=500_000 - placed).contains(&usage.overflowed), "{usage:?}");
    assert_eq!((usage.reclaimed, usage.max_bytes), (0, MAX_BYTES), "{usage:?}");
    // Every key with a slot was admitted once; the others shared sixteen buckets of ten.
    assert!(admitted <= usage.keys as u64 + 16 * 10, "{admitted} of {usage:?}");
}

#[test]
fn placed_key_starts_from_overflow_bucket() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_clock(clock.clone(), MAX_BYTES);
    let slow = policy(Algorithm::FixedWindow, 10, Micros::from_secs(86_400));
    let short = policy(Algorithm::FixedWindow, 10, Micros::from_secs(1));
    // Fill the table with short-lived keys, then exhaust the overflow buckets of the slow rule.
    for name in 0..100_000 {
        admit(&store, &[charge("short", name, &short)]);
    }
    let new_keys: Vec<u64> = (1_000_000..1_001_000).collect();
    let before = store.usage().keys;
    let admitted: usize = new_keys
        .iter()
        .map(|name| (0..10).filter(|_| admit(&store, &[charge("slow", *name, &slow)])).count())
        .sum();
    let placed = store.usage().keys - before;
    assert!(placed < 50, "{placed} new keys got a slot in a table that should be full");
    assert!(admitted <= 10 * (placed + 16), "{admitted} admitted, {placed} keys with a slot");
    // The short-lived keys expire and free their slots. Keys that used an overflow bucket keep its
    // usage.
    clock.advance(Micros::from_secs(10));
    sweep_all(&store);
    assert_eq!(store.usage().keys, placed);
    let again =
        new_keys.iter().filter(|name| admit(&store, &[charge("slow", **name, &slow)])).count();
    assert_eq!(again, 0);
    // After the window the overflow buckets are empty, so all keys are admitted.
    clock.advance(Micros::from_secs(86_400));
    assert!(new_keys.iter().all(|name| admit(&store, &[charge("slow", *name, &slow)])));
    // Shared states are removed once they have expired, too.
    assert!((1..=16).contains(&store.usage().overflow), "{:?}", store.usage());
    clock.advance(Micros::from_secs(2 * 86_400));
    sweep_all(&store);
    assert_eq!((store.usage().keys, store.usage().overflow), (0, 0));
}

/// A full table looks for expired keys as soon as there can be any.
#[test]
fn full_table_reuses_slots_of_expired_keys() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_shards(clock.clone(), 33 * 100, 1);
    let policy = policy(Algorithm::FixedWindow, 1, Micros::from_secs(1));
    for name in 0..200 {
        admit(&store, &[charge("short", name, &policy)]);
    }
    let full = store.usage();
    assert!(full.keys < 100 && full.overflowed > 0, "{full:?}");
    let end = Timestamp::from_micros(START.as_micros().next_multiple_of(1_000_000));
    for (now, is_full) in [(end.minus(Micros::new(1)), true), (end, false)] {
        clock.set(now);
        let before = store.usage().overflowed;
        admit(&store, &[charge("short", now.as_micros(), &policy)]);
        assert_eq!(store.usage().overflowed > before, is_full, "{:?}", store.usage());
    }
    assert!(store.usage().reclaimed > 0, "{:?}", store.usage());
    clock.advance(MINUTE);
    sweep_all(&store);
    assert_eq!((store.usage().keys, store.usage().overflow), (0, 0));
}

/// A slot has room for times until the year 2112.
#[test]
fn late_times_are_stored_outside_of_slots() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_shards(clock.clone(), MAX_BYTES, 1);
    let policy = policy(Algorithm::TokenBucket, 10, MINUTE);
    let one = [charge("rule", 1, &policy)];
    let left = || apply(&store, Op::Peek, &one)[0].remaining;
    assert!((0..3).all(|_| admit(&store, &one)));
    let before = store.usage().bytes;
    for (end, late) in [((1_u64 << 52) - 1, false), (1 << 52, true), ((1 << 52) + 1, true)] {
        clock.set(Timestamp::from_micros(end));
        apply(&store, Op::Reset, &one);
        clock.set(Timestamp::from_micros(end - 1));
        assert!(admit(&store, &one));
        clock.set(Timestamp::from_micros(end));
        assert!((0..3).all(|_| admit(&store, &one)));
        assert_eq!(left(), 6, "{end}");
        let spilled = store.usage().bytes - before;
        assert_eq!(spilled >= size_of::<State>() as u64, late, "{end}: {spilled} bytes");
    }
}

/// The limit was raised after the log was made.
#[test]
fn log_that_outgrows_its_reservation_is_counted() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_shards(clock.clone(), MAX_BYTES, 1);
    let [small, large] =
        [10, 1_000].map(|limit| policy(Algorithm::SlidingWindowLog, limit, MINUTE));
    assert!(admit(&store, &[charge("log", 1, &small)]));
    let before = store.usage().bytes;
    for _ in 0..600 {
        clock.advance(Micros::new(1));
        assert!(admit(&store, &[charge("log", 1, &large)]));
    }
    assert!(store.usage().bytes >= before + 600 * 16 - 10 * 16, "{:?}", store.usage());
}

#[test]
fn many_new_keys_fit_in_one_batch() {
    let store = MemoryStore::with_shards(ManualClock::new(START), MAX_BYTES, 1);
    let policy = policy(Algorithm::FixedWindow, 10, MINUTE);
    let charges: Vec<_> = (0..300).map(|name| charge("rule", name, &policy)).collect();
    assert!(admit(&store, &charges));
    assert_eq!((store.usage().keys, store.usage().overflowed), (300, 0));
    let readings = apply(&store, Op::Peek, &charges);
    assert!(readings.iter().all(|reading| reading.remaining == 9));
}

#[test]
fn store_trait_decides_and_tells_time() {
    let store = MemoryStore::with_shards(ManualClock::new(START), MAX_BYTES, 1);
    let policy = policy(Algorithm::FixedWindow, 10, MINUTE);
    let (charges, mut readings) = ([charge("rule", 1, &policy)], [Reading::default()]);
    let answered = ready(store.apply(Op::Charge, &charges, &mut readings));
    assert_eq!((answered, readings[0].remaining), (Ok(AnsweredBy::Store), 9));
    assert_eq!(ready(store.now()), Ok(START));
}

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the store answers at once"),
    }
}

/// Slots are stored individually, including those of late renewals.
#[test]
fn concurrency_slots_reserve_worst_case_bytes() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_clock(clock.clone(), MAX_BYTES);
    let slots = policy(Algorithm::Concurrent, 1_000, MINUTE);
    for name in 0..10_000 {
        admit(&store, &[charge("slots", name, &slots)]);
    }
    let usage = store.usage();
    assert!((50..=64).contains(&usage.keys), "{usage:?}");
    for _ in 0..3_000 {
        clock.advance(Micros::new(1));
        apply(&store, Op::Force, &[charge("slots", 0, &slots)]);
    }
    assert_eq!(store.usage(), usage, "the reservation covers debt");
}

#[test]
fn window_logs_reserve_worst_case_bytes() {
    let store = MemoryStore::with_clock(ManualClock::new(START), MAX_BYTES);
    let log = policy(Algorithm::SlidingWindowLog, 1_000, MINUTE);
    for name in 0..10_000 {
        admit(&store, &[charge("log", name, &log)]);
    }
    let usage = store.usage();
    // 1 024 entries of 16 bytes each: about 127 logs fit into 2 MiB.
    assert!((100..=128).contains(&usage.keys), "{usage:?}");
    assert!(usage.bytes <= MAX_BYTES, "{usage:?}");
}

#[test]
fn sweep_removes_expired_states_and_frees_memory() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_clock(clock.clone(), 64 << 20);
    for (kind, algorithm) in (0..).zip(Algorithm::ALL) {
        let policy = policy(algorithm, 10, MINUTE);
        for name in 0..10_000 {
            admit(&store, &[charge(algorithm.name(), kind << 32 | name, &policy)]);
        }
    }
    let full = store.usage();
    assert_eq!(full.keys, 50_000);
    clock.advance(Micros::from_secs(3_600));
    sweep_all(&store);
    let empty = store.usage();
    assert_eq!((empty.keys, empty.reclaimed), (0, 50_000));
    assert!(empty.bytes < full.bytes / 3, "{empty:?} after {full:?}");
}

/// A table has at most three times the slots that its keys need.
#[test]
fn sparse_table_returns_free_slots() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_shards(clock.clone(), MAX_BYTES, 1);
    let [short, long] =
        [1, 86_400].map(|secs| policy(Algorithm::FixedWindow, 10, Micros::from_secs(secs)));
    for name in 0..1_100 {
        let policy = if name % 11 == 0 { &long } else { &short };
        admit(&store, &[charge("rule", name, policy)]);
    }
    clock.advance(MINUTE);
    for _ in 0..10 {
        sweep_all(&store);
    }
    let usage = store.usage();
    assert_eq!(usage.keys, 100);
    assert!((158 * 33..=3 * 158 * 33).contains(&usage.bytes), "{usage:?}");
}

/// Keys include the algorithm, so this cannot happen; if it did, it must be harmless.
#[test]
fn algorithm_change_resets_only_that_key() {
    let store = MemoryStore::with_clock(ManualClock::new(START), MAX_BYTES);
    // Token and leaky buckets have the same state, so use only one of them.
    let kinds: Vec<_> =
        Algorithm::ALL.into_iter().filter(|each| *each != Algorithm::TokenBucket).collect();
    for algorithm in kinds.iter().chain(&kinds) {
        let policy = policy(*algorithm, 10, MINUTE);
        assert!(admit(&store, &[charge("rule", 1, &policy)]));
        assert_eq!(apply(&store, Op::Peek, &[charge("rule", 1, &policy)])[0].remaining, 9);
    }
    assert_eq!(store.usage().keys, 1);
}

#[test]
fn recently_expired_key_keeps_its_slot() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::with_clock(clock.clone(), 64 << 20);
    let policy = policy(Algorithm::TokenBucket, 100, Micros::from_secs(1));
    admit(&store, &[charge("rule", 1, &policy)]);
    clock.advance(Micros::from_secs(1));
    sweep_all(&store);
    assert_eq!(store.usage().keys, 1);
    assert_eq!(apply(&store, Op::Peek, &[charge("rule", 1, &policy)])[0].remaining, 100);
}

/// Removing a key moves others to its slot, also those that the same batch removes next.
#[test]
fn reset_batch_removes_exactly_its_keys() {
    let policy = policy(Algorithm::FixedWindow, 10, MINUTE);
    for round in 0..50 {
        let store = MemoryStore::with_shards(ManualClock::new(START), MAX_BYTES, 1);
        let charges: Vec<_> =
            (0..40).map(|name| charge("rule", round << 8 | name, &policy)).collect();
        assert!(charges.iter().all(|one| admit(&store, std::slice::from_ref(one))));
        let (removed, kept) = charges.split_at(20);
        apply(&store, Op::Reset, removed);
        assert_eq!(store.usage().keys, kept.len());
        let left = |charges| {
            let readings = apply(&store, Op::Peek, charges);
            readings.iter().map(|reading| reading.remaining).collect::<Vec<_>>()
        };
        assert_eq!((left(removed), left(kept)), (vec![10; 20], vec![9; 20]));
    }
}
