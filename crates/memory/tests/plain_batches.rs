//! Plain charges, which skip most of the work if their keys have slots, match the reference table:
//! one to four rules at once, with clocks of both kinds.

#![cfg(not(loom))]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{START, admit, apply, charge, fingerprint, policy};
use proptest::prelude::*;
use tidegate_core::key::Key;
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::{Clock, ManualClock, Micros, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::state_table::StateTable;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::LeakyBucket(LeakMode::Queue),
    Algorithm::FixedWindow,
];

/// A clock that the store reads before it takes its locks. Unlike a real one, it can be set back.
#[derive(Default)]
struct EarlyClock(AtomicU64);

impl Clock for EarlyClock {
    const MONOTONIC: bool = true;

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

impl EarlyClock {
    fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

/// A rule, before and after an edit that changes its rate.
#[derive(Clone, Copy, Debug)]
struct PlainRule {
    policies: [Policy; 2],
    role: Role,
}

#[derive(Clone, Copy, Debug)]
struct PlainStep {
    wait: u64,
    /// Bit mask of the rules in the batch.
    rules: u8,
    key: u64,
    cost: u64,
    is_peek: bool,
    is_edited: bool,
}

fn plain_rules() -> impl Strategy<Value = Vec<PlainRule>> {
    let rule = (0_usize..6, 1_u64..8, 1_u64..8, 0_u8..6).prop_map(|(kind, one, other, role)| {
        // Mostly token buckets, which take the shortest way.
        let algorithm = ALGORITHMS.get(kind).copied().unwrap_or(Algorithm::TokenBucket);
        let role = match role {
            0..=3 => Role::Enforce,
            4 => Role::Shadow,
            _ => Role::Always,
        };
        let policies = [one, other].map(|limit| policy(algorithm, limit, Micros::from_millis(10)));
        PlainRule { policies, role }
    });
    prop::collection::vec(rule, 4)
}

fn plain_steps() -> impl Strategy<Value = Vec<PlainStep>> {
    let wait = prop_oneof![3 => Just(0), 2 => 1_u64..3_000, 1 => 1_u64..30_000];
    let numbers = (wait, 1_u8..16, 0_u64..3, prop_oneof![4 => Just(1), 1 => 0_u64..9], 0_u8..16);
    let step = numbers.prop_map(|(wait, rules, key, cost, kind)| {
        let (is_peek, is_edited) = (kind == 0, kind > 13);
        PlainStep { wait, rules, key, cost, is_peek, is_edited }
    });
    prop::collection::vec(step, 1..60)
}

/// The charges of a step. Each rule has separate counters.
fn charges<'a>(rules: &'a [PlainRule], step: &PlainStep) -> Vec<Charge<'a>> {
    (0..4)
        .zip(rules)
        .filter(|(i, _)| step.rules >> i & 1 == 1)
        .map(|(i, rule)| {
            let key = Key::without_namespace("rule", fingerprint(i << 8 | step.key));
            let policy = &rule.policies[usize::from(step.is_edited)];
            Charge { role: rule.role, ..Charge::plain(key, policy, step.cost) }
        })
        .collect()
}

fn check_plain_batches<C: Clock>(
    name: &str,
    shards: usize,
    clock: fn() -> C,
    set: fn(&C, Timestamp),
) {
    let histories = (plain_rules(), plain_steps());
    check_property(name, cases(), &histories, |(rules, steps)| {
        let store = MemoryStore::with_shards(clock(), 1 << 20, shards);
        let (mut table, mut now) = (StateTable::default(), START);
        for (at, step) in steps.iter().enumerate() {
            now = now.plus(Micros::new(step.wait));
            set(store.clock(), now);
            let (op, charges) =
                (if step.is_peek { Op::Peek } else { Op::Charge }, charges(&rules, step));
            let (actual, expected) = (apply(&store, op, &charges), table.apply(op, &charges, now));
            prop_assert_eq!(actual, expected, "step {} of {:?}", at, steps);
        }
        Ok(())
    });
}

#[test]
fn plain_batches_conform_in_many_shards() {
    let clock = || ManualClock::new(START);
    check_plain_batches("memory-plain-many", 256, clock, ManualClock::set);
}

#[test]
fn plain_batches_conform_in_few_shards() {
    let clock = || ManualClock::new(START);
    check_plain_batches("memory-plain-few", 2, clock, ManualClock::set);
}

#[test]
fn plain_batches_conform_with_early_clock() {
    check_plain_batches("memory-plain-early", 256, EarlyClock::default, EarlyClock::set);
}

/// A thread that waited for the lock has an older time than the one before it.
#[test]
fn key_time_never_goes_back() {
    let (hour, later) = (Micros::from_secs(3_600), START.plus(Micros::new(100)));
    let policy = policy(Algorithm::TokenBucket, 100, hour);
    for others in 0..4 {
        let store = MemoryStore::with_shards(EarlyClock::default(), 1 << 20, 256);
        let batch: Vec<_> = (0..=others).map(|name| charge("rule", name, &policy)).collect();
        for (clock, expected) in [(START, START), (later, later), (START, later)] {
            store.clock().set(clock);
            for op in [Op::Charge, Op::Peek] {
                let readings = apply(&store, op, &batch);
                assert!(readings.iter().all(|reading| reading.now == expected), "{readings:?}");
            }
        }
        // Another key of the batch has seen the later time, so the batch happens then.
        let mixed = [charge("rule", 50 + others, &policy), charge("rule", 0, &policy)];
        assert!(apply(&store, Op::Charge, &mixed).iter().all(|reading| reading.now == later));
        assert!(admit(&store, &mixed));
    }
}
