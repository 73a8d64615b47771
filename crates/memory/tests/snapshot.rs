//! Snapshots: a restart refills no counter, and an invalid file is rejected.

mod common;

use common::{START, admit, apply, charge, policy};
use tidegate_core::key::Secret;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{ManualClock, Micros};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore, SnapshotError};

const SECRET: Secret = Secret::UNSET;

fn store(clock: &ManualClock) -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES)
}

fn policies() -> Vec<Policy> {
    let all = Algorithm::ALL.into_iter().chain([Algorithm::Concurrent]);
    all.map(|each| policy(each, 5, Micros::from_secs(60))).collect()
}

/// One charge per algorithm, the first with a ban.
fn charges<'a>(policies: &'a [Policy], ban: &'a BanPolicy) -> Vec<Charge<'a>> {
    let mut charges: Vec<_> =
        (0..).zip(policies).map(|(name, policy)| charge("rule", name, policy)).collect();
    charges[0].ban = Some(ban);
    charges
}

#[test]
fn snapshot_restores_every_state_kind() {
    let clock = ManualClock::new(START);
    let (before, policies) = (store(&clock), policies());
    let ban =
        BanPolicy::new(2, Micros::from_secs(60), Micros::from_secs(600), 2, Micros::from_secs(600));
    let charges = charges(&policies, &ban);
    for _ in 0..7 {
        for each in &charges {
            admit(&before, std::slice::from_ref(each));
            clock.advance(Micros::new(1_003));
        }
    }
    let after = store(&clock);
    let restored = after.restore_snapshot(&before.snapshot(SECRET), SECRET).unwrap();
    assert_eq!((restored.keys, restored.skipped), (7, 0));
    assert_eq!(apply(&after, Op::Peek, &charges), apply(&before, Op::Peek, &charges));
    assert!(apply(&after, Op::Peek, &charges).iter().all(|reading| reading.verdict.refuses()));
    clock.advance(Micros::from_secs(30));
    assert_eq!(apply(&after, Op::Charge, &charges), apply(&before, Op::Charge, &charges));
}

#[test]
fn restored_buckets_refill_only_forward() {
    let clock = ManualClock::new(START);
    let (before, policy) =
        (store(&clock), policy(Algorithm::TokenBucket, 60, Micros::from_secs(60)));
    let charges = [charge("rule", 1, &policy)];
    for _ in 0..60 {
        assert!(admit(&before, &charges));
    }
    let file = before.snapshot(SECRET);
    for (now, left) in
        [(START.plus(Micros::from_secs(10)), 10), (START.minus(Micros::from_secs(10)), 0)]
    {
        clock.set(now);
        let after = store(&clock);
        after.restore_snapshot(&file, SECRET).unwrap();
        assert_eq!(apply(&after, Op::Peek, &charges)[0].remaining, left);
    }
}

/// The holders ended with the stopped process, so the slots are neither released nor renewed.
#[test]
fn restored_slots_expire_after_hold() {
    let clock = ManualClock::new(START);
    let (before, policy) = (store(&clock), policy(Algorithm::Concurrent, 2, Micros::from_secs(30)));
    let charges = [charge("rule", 1, &policy)];
    assert!(admit(&before, &charges) && admit(&before, &charges));
    let after = store(&clock);
    after.restore_snapshot(&before.snapshot(SECRET), SECRET).unwrap();
    clock.advance(Micros::new(29_999_999));
    assert!(!admit(&after, &charges));
    clock.advance(Micros::new(1));
    assert!(admit(&after, &charges));
}

#[test]
fn invalid_snapshot_is_rejected_whole() {
    let clock = ManualClock::new(START);
    let (before, policies) = (store(&clock), policies());
    let ban =
        BanPolicy::new(2, Micros::from_secs(60), Micros::from_secs(600), 2, Micros::from_secs(600));
    for each in &charges(&policies, &ban) {
        admit(&before, std::slice::from_ref(each));
    }
    let file = before.snapshot(SECRET);
    let after = store(&clock);
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x40;
        assert!(after.restore_snapshot(&damaged, SECRET).is_err(), "byte {at}");
        assert!(after.restore_snapshot(&file[..at], SECRET).is_err(), "cut at {at}");
    }
    assert_eq!(
        after.restore_snapshot(b"{\"not\": \"ours\"}", SECRET),
        Err(SnapshotError::UnknownFormat)
    );
    let other = Secret::from_bytes(b"another fleet");
    assert_eq!(after.restore_snapshot(&file, other), Err(SnapshotError::SecretMismatch));
    assert_eq!(after.usage().keys, 0, "nothing of an invalid file is restored");
}

/// What does not fit into memory or is there already is left out, and the rest is restored.
#[test]
fn restore_stays_within_memory() {
    const MAX_BYTES: u64 = 64 << 10;
    let clock = ManualClock::new(START);
    let (before, log) =
        (store(&clock), policy(Algorithm::SlidingWindowLog, 100, Micros::from_secs(60)));
    for _ in 0..100 {
        clock.advance(Micros::new(1));
        for name in 0..100 {
            admit(&before, &[charge("log", name, &log)]);
        }
    }
    let file = before.snapshot(SECRET);
    let after = MemoryStore::with_clock(clock.clone(), MAX_BYTES);
    let restored = after.restore_snapshot(&file, SECRET).unwrap();
    assert_eq!(restored.keys + restored.skipped, 100);
    // Each log takes more than 1 600 bytes.
    assert!((10..40).contains(&restored.keys), "{restored:?}");
    assert!(after.usage().bytes <= MAX_BYTES, "{:?}", after.usage());
    let again = before.restore_snapshot(&file, SECRET).unwrap();
    assert_eq!((again.keys, again.skipped), (0, 100));
}
