//! The memory store matches the reference table on any history, also while it removes expired
//! states.

#![cfg(not(loom))]

mod common;

use common::apply;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_testkit::conformance::{ConformanceStore, check_conformance};
use tidegate_testkit::property::cases;

struct MemorySubject {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl MemorySubject {
    fn new(shards: usize) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::with_shards(clock.clone(), 1 << 20, shards);
        Self { clock, store }
    }
}

impl ConformanceStore for MemorySubject {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
        self.store.sweep();
    }

    fn apply(&mut self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading> {
        apply(&self.store, op, charges)
    }
}

#[test]
fn memory_store_conforms() {
    check_conformance("memory", cases(), || MemorySubject::new(2));
}

/// All keys in one hash table: exercises collisions, wrap-around, shifting and shrinking.
#[test]
fn memory_store_conforms_in_single_shard() {
    check_conformance("memory-one-shard", cases(), || MemorySubject::new(1));
}
