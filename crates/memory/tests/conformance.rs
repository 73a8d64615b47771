//! The memory store says what the simplest table of states says, on any history, also while it
//! sheds what is equal to fresh.

#![cfg(not(loom))]

mod common;

use common::apply;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_testkit::conformance::{Subject, agrees};
use tidegate_testkit::property::cases;

struct Memory {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl Memory {
    fn new(shards: usize) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::with_shards(clock.clone(), 1 << 20, shards);
        Self { clock, store }
    }
}

impl Subject for Memory {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
        self.store.sweep();
    }

    fn apply(&mut self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading> {
        apply(&self.store, op, charges)
    }
}

#[test]
fn memory_conforms() {
    agrees("memory", cases(), || Memory::new(2));
}

/// All keys in one table: they collide, wrap around, shift and shrink.
#[test]
fn memory_conforms_in_a_single_shard() {
    agrees("memory-one-shard", cases(), || Memory::new(1));
}
