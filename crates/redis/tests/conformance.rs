//! Runs the conformance suite of all stores on real servers, with a test clock.
//!
//! `TIDEGATE_REDIS_SERVER` names the server program; the default is Redis.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;

use common::RedisFixture;
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Timestamp;
use tidegate_testkit::conformance::{ConformanceStore, check_conformance};
use tidegate_testkit::property::cases;
use tidegate_testkit::redis::{RedisCluster, RedisServer, slot_of};

/// A store that renames keys, so that each history has separate counters.
struct RenamingStore<'a, F> {
    fixture: &'a RedisFixture,
    rename: F,
}

impl<F: FnMut(Fingerprint) -> Fingerprint> ConformanceStore for RenamingStore<'_, F> {
    fn set_now(&mut self, now: Timestamp) {
        self.fixture.clock.set(now);
    }

    fn apply(&mut self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading> {
        let mut charges = charges.to_vec();
        for charge in &mut charges {
            charge.key.fingerprint = (self.rename)(charge.key.owner()) ^ charge.key.namespace;
        }
        self.fixture.apply(op, &charges)
    }
}

#[test]
fn redis_store_passes_conformance() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let histories = Cell::new(0_u64);
    check_conformance("redis", cases() / 50, || {
        histories.set(histories.get() + 1);
        let number = histories.get();
        let rename = move |Fingerprint { hi, lo }| Fingerprint { hi: hi ^ number << 8, lo };
        RenamingStore { fixture: &fixture, rename }
    });
}

/// On a cluster, a request is atomic only if its keys share a slot. Otherwise it is charged slot by
/// slot and refunded if one slot refuses, which concurrent requests can observe. So all keys of a
/// history share one slot here; different histories use different slots on all servers.
#[test]
fn redis_cluster_passes_conformance_per_slot() {
    let cluster = RedisCluster::start();
    let hosts = cluster.urls().join(",").replace("redis://", "");
    let fixture = RedisFixture::with_test_clock(&format!("redis+cluster://{hosts}"));
    let slots: Vec<Vec<Fingerprint>> = keys_by_slot(KEYS).take(2_000).collect();
    let histories = Cell::new(0);
    check_conformance("redis-cluster", cases() / 200, || {
        let keys = &slots[histories.get() % slots.len()];
        if histories.get() > 0 && histories.get().is_multiple_of(slots.len()) {
            cluster.nodes()[..3].iter().for_each(|node| _ = node.command(&["FLUSHALL"]));
        }
        histories.set(histories.get() + 1);
        let mut known = BTreeMap::new();
        let rename = move |key: Fingerprint| {
            let next = known.len();
            *known.entry(key).or_insert_with(|| keys[next])
        };
        RenamingStore { fixture: &fixture, rename }
    });
}

/// Three owners with counters of three rules, and three of a rule with standalone counters.
const KEYS: usize = 6;

/// Groups of keys that share a slot, for each slot with at least `keys` of them.
fn keys_by_slot(keys: usize) -> impl Iterator<Item = Vec<Fingerprint>> {
    let mut slots: BTreeMap<u16, Vec<Fingerprint>> = BTreeMap::new();
    for number in 0..300_000 {
        let key = common::fingerprint(number);
        slots.entry(slot_of(common::hash_tag(key))).or_default().push(key);
    }
    // Adjacent slots are on the same server; this order alternates between servers.
    let mut all: Vec<_> = slots.into_values().filter(move |slot| slot.len() >= keys).collect();
    all.sort_by_key(|slot| slot[0]);
    all.into_iter()
}
