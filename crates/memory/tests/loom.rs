//! Explores every interleaving of a few threads with loom. `cargo xtask test` builds this with
//! `--cfg loom`.

#![cfg(loom)]
#![allow(clippy::expect_used, reason = "a test may panic")]

mod common;

use common::{START, admit, apply, charge, policy};
use loom::sync::Arc;
use loom::thread;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{ManualClock, Micros};
use tidegate_memory::MemoryStore;

type KeyBatch = &'static [(&'static str, u64)];

fn policy_of_one() -> &'static Policy {
    Box::leak(Box::new(policy(Algorithm::FixedWindow, 1, Micros::from_secs(60))))
}

fn charges(policy: &'static Policy, batch: KeyBatch) -> Vec<Charge<'static>> {
    batch.iter().map(|(rule, name)| charge(rule, *name, policy)).collect()
}

/// Runs the batches concurrently on a store of `max_bytes`. Passes whether each batch was admitted,
/// and what each of `names` has left, to `check`.
fn explore_interleavings(
    max_bytes: u64,
    batches: &'static [KeyBatch],
    names: KeyBatch,
    check: fn(&[bool], &[u64]),
) {
    let policy = policy_of_one();
    loom::model(move || {
        let store = Arc::new(MemoryStore::with_shards(ManualClock::new(START), max_bytes, 4));
        let threads: Vec<_> = batches
            .iter()
            .map(|batch| {
                let store = Arc::clone(&store);
                thread::spawn(move || admit(&store, &charges(policy, batch)))
            })
            .collect();
        let passed: Vec<bool> =
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let left: Vec<u64> = charges(policy, names)
            .iter()
            .map(|each| apply(&store, Op::Peek, std::slice::from_ref(each))[0].remaining)
            .collect();
        check(&passed, &left);
    });
}

/// The number of admitted batches.
fn admitted(passed: &[bool]) -> usize {
    passed.iter().filter(|passed| **passed).count()
}

#[test]
fn single_key_admits_exactly_one() {
    explore_interleavings(1 << 20, &[&[("a", 1)], &[("a", 1)]], &[("a", 1)], |passed, left| {
        assert_eq!((admitted(passed), left), (1, &[0][..]));
    });
}

/// Two batches with the same keys in opposite order, in more than one shard. If the locks were
/// taken in batch order, this model would find the deadlock.
#[test]
fn crossed_batches_admit_exactly_one() {
    explore_interleavings(
        1 << 20,
        &[&[("a", 1), ("b", 2), ("c", 3), ("d", 4)], &[("d", 4), ("c", 3), ("b", 2), ("a", 1)]],
        &[("a", 1), ("b", 2), ("c", 3), ("d", 4)],
        |passed, left| assert_eq!((admitted(passed), left), (1, &[0; 4][..])),
    );
}

/// A batch refused by one of its keys does not charge the other.
#[test]
fn refused_batch_charges_nothing() {
    explore_interleavings(
        1 << 20,
        &[&[("a", 1)], &[("a", 1), ("b", 2)]],
        &[("a", 1), ("b", 2)],
        |passed, left| {
            // Both need the only unit of `a`. Only the second one uses the unit of `b`.
            let expected = if passed[1] { [0, 0] } else { [0, 1] };
            assert_eq!((admitted(passed), left), (1, &expected[..]));
        },
    );
}

/// No memory for any key: all keys share overflow buckets, which are locked after the shards.
#[test]
fn crossed_batches_share_overflow_buckets() {
    explore_interleavings(
        0,
        &[&[("a", 1), ("b", 2), ("c", 3)], &[("c", 3), ("b", 2), ("a", 1)]],
        &[("a", 1), ("b", 2), ("c", 3)],
        |passed, left| assert_eq!((admitted(passed), left), (1, &[0; 3][..])),
    );
}

/// Existing buckets take the fast path: ordered locks, no vectors, and readings computed after the
/// locks are released. There are many shards, so that no two keys share one.
#[test]
fn crossed_batches_on_fast_path_admit_one() {
    const NAMES: KeyBatch = &[("a", 1), ("b", 2)];
    const BATCHES: [KeyBatch; 2] = [NAMES, &[("b", 2), ("a", 1)]];
    let policy: &'static Policy =
        Box::leak(Box::new(policy(Algorithm::TokenBucket, 2, Micros::from_secs(60))));
    loom::model(move || {
        let store = Arc::new(MemoryStore::with_shards(ManualClock::new(START), 1 << 20, 64));
        assert!(admit(&store, &charges(policy, NAMES)));
        let threads = BATCHES.map(|batch| {
            let store = Arc::clone(&store);
            thread::spawn(move || admit(&store, &charges(policy, batch)))
        });
        let passed = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(passed.iter().filter(|passed| **passed).count(), 1);
        for reading in apply(&store, Op::Peek, &charges(policy, NAMES)) {
            assert_eq!(reading.remaining, 0);
        }
    });
}
