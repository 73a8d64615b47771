//! A map from counters to their state on this node, in shards with one lock each.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::key::Fingerprint;

const SHARDS: usize = 64;

/// A map for concurrent use.
#[derive(Debug)]
pub(crate) struct CounterShards<C>(Box<[Mutex<CounterShard<C>>]>);

/// The part of a map behind one lock.
pub(crate) type CounterShard<C> = HashMap<Fingerprint, C, BuildHasherDefault<FingerprintHasher>>;

impl<C> CounterShards<C> {
    /// Bytes of an entry, estimated.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Fingerprint>() + size_of::<C>() + 64;

    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// How many counters a shard may hold, so that all together take at most `max_bytes`.
    pub(crate) fn max_per_shard(max_bytes: usize) -> usize {
        (max_bytes / Self::ENTRY_BYTES / SHARDS).max(1)
    }

    /// Locks the shard that holds a counter.
    pub(crate) fn lock(&self, key: Fingerprint) -> MutexGuard<'_, CounterShard<C>> {
        lock(&self.0[usize::try_from(key.hi % SHARDS as u64).unwrap_or(0)])
    }

    /// Locks one shard after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, CounterShard<C>>> {
        self.0.iter().map(lock)
    }
}

fn lock<C>(shard: &Mutex<CounterShard<C>>) -> MutexGuard<'_, CounterShard<C>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fingerprints are hashes already.
#[derive(Debug, Default)]
pub(crate) struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(32) ^ number;
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn all_shards_together_stay_within_bytes() {
        // A key, a number and the overhead take 16 + 8 + 64 bytes.
        let max = CounterShards::<u64>::max_per_shard;
        assert_eq!([88 * 64 * 10, 88 * 64 * 10 - 1].map(max), [10, 9]);
        assert_eq!([0, 88].map(max), [1, 1], "at least one");
    }

    #[test]
    fn every_fingerprint_bit_changes_hash() {
        let hash =
            |key: Fingerprint| BuildHasherDefault::<FingerprintHasher>::default().hash_one(key);
        for hi in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let key = Fingerprint { hi, lo: 0xfedc_ba98_7654_3210 };
            for bit in (0..64).map(|at| 1 << at) {
                assert_ne!(hash(key), hash(Fingerprint { hi: key.hi ^ bit, ..key }));
                assert_ne!(hash(key), hash(Fingerprint { lo: key.lo ^ bit, ..key }));
            }
        }
        let build = BuildHasherDefault::<FingerprintHasher>::default();
        assert_ne!(build.hash_one("ab"), build.hash_one("ba"));
    }
}
