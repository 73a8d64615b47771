//! The table hash: a hash of the fingerprint, keyed with a secret of this process, that selects a
//! key's shard and slot.
//!
//! The secret of the fingerprint may be a public constant. Without this second secret, an attacker
//! could choose keys that all fall into one shard.

#[cfg(not(loom))]
use std::hash::{BuildHasher, Hasher, RandomState};

use tidegate_core::key::Fingerprint;

/// A hash function keyed with the secret of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHasher([u64; 2]);

/// The hash of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableHash(u64);

impl TableHasher {
    pub(crate) fn random() -> Self {
        Self([random_word(), random_word()])
    }

    /// Multiplies the two halves and folds the product. This is universal over the secret, and the
    /// fingerprint is well mixed already.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "folds the product's two halves")]
    pub(crate) fn hash(&self, key: Fingerprint) -> TableHash {
        let product = u128::from(key.hi ^ self.0[0]) * u128::from(key.lo ^ self.0[1]);
        TableHash((product >> 64) as u64 ^ product as u64)
    }
}

impl TableHash {
    /// The shard, from the upper bits. `shards` is a power of two.
    #[inline]
    pub(crate) const fn shard(self, shards: usize) -> usize {
        (self.0 >> 44) as usize & (shards - 1)
    }

    /// Some bits that neither the shard nor the home slot depends on. Never zero.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "any eight bits will do")]
    pub(crate) const fn tag(self) -> u8 {
        (self.0 >> 33) as u8 | 1
    }

    /// The home slot: the lower bits, scaled to `slots`.
    #[inline]
    pub(crate) const fn home_slot(self, slots: usize) -> usize {
        (((self.0 & 0xffff_ffff) * slots as u64) >> 32) as usize
    }
}

/// `std` seeds each `RandomState` from the system's random source.
#[cfg(not(loom))]
fn random_word() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A constant, because a loom model must be deterministic.
#[cfg(loom)]
fn random_word() -> u64 {
    0x9e37_79b9_7f4a_7c15
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::key::Secret;

    fn fingerprint(name: u64) -> Fingerprint {
        Secret::UNSET.namespace(&[&name.to_le_bytes()])
    }

    /// The upper half selects the shard, the lower half the slot.
    #[test]
    fn every_key_bit_changes_both_halves() {
        for name in 0..4 {
            let (hasher, key) = (TableHasher::random(), fingerprint(name));
            let halves = |key| {
                let TableHash(hash) = hasher.hash(key);
                (hash >> 32, hash & 0xffff_ffff)
            };
            let (upper, lower) = halves(key);
            for bit in (0..64).map(|at| 1 << at) {
                let (hi, lo) = (key.hi ^ bit, key.lo ^ bit);
                for other in [Fingerprint { hi, ..key }, Fingerprint { lo, ..key }] {
                    let (other_upper, other_lower) = halves(other);
                    assert!(upper != other_upper && lower != other_lower, "{bit:x}");
                }
            }
        }
    }

    #[test]
    fn keys_spread_evenly() {
        const KEYS: usize = 64_000;
        let (hasher, mut counts) = (TableHasher::random(), [[0; 64]; 3]);
        for name in 0..KEYS as u64 {
            let hash = hasher.hash(fingerprint(name));
            let (shard, slot) = (hash.shard(64), hash.home_slot(64));
            let tag = usize::from(hash.tag() >> 2);
            for (counts, at) in counts.iter_mut().zip([shard, slot, tag]) {
                counts[at] += 1;
            }
            assert_ne!(hash.tag(), 0);
        }
        let mean = KEYS / 64;
        let is_even = |count: &usize| (mean / 2..mean * 2).contains(count);
        assert!(counts.as_flattened().iter().all(is_even), "{counts:?}");
    }
}
