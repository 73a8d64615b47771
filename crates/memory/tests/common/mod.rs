//! Test helpers: policies, keys and charges.

#![allow(dead_code, clippy::expect_used, reason = "each test file uses some of it")]

use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Clock, Micros, Timestamp};
use tidegate_memory::MemoryStore;

/// A time inside a window of any round length.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_123_457);

pub(crate) fn policy(algorithm: Algorithm, requests: u64, window: Micros) -> Policy {
    Policy::new(algorithm, Quota::new(requests, window)).expect("a valid quota")
}

pub(crate) fn fingerprint(name: u64) -> Fingerprint {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(&name.to_le_bytes());
    hasher.finish()
}

pub(crate) fn charge<'a>(rule: &'a str, name: u64, policy: &'a Policy) -> Charge<'a> {
    let key = Key::without_namespace(rule, fingerprint(name));
    Charge::plain(key, policy, 1)
}

pub(crate) fn apply<C: Clock>(
    store: &MemoryStore<C>,
    op: Op,
    charges: &[Charge<'_>],
) -> Vec<Reading> {
    let mut readings = vec![Reading::default(); charges.len()];
    store.apply_now(op, charges, &mut readings);
    readings
}

/// Charges the batch and returns whether it was admitted.
pub(crate) fn admit<C: Clock>(store: &MemoryStore<C>, charges: &[Charge<'_>]) -> bool {
    !apply(store, Op::Charge, charges).iter().any(|reading| reading.verdict.refuses())
}
