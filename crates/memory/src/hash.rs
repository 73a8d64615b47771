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
