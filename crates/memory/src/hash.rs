//! Where a key lives in the table: a hash of its fingerprint under a secret of this process.
//!
//! The fingerprint's own secret may be a constant that everybody knows; without this second one an
//! attacker could choose keys that all fall into one shard.

#[cfg(not(loom))]
use std::hash::{BuildHasher, Hasher, RandomState};

use tidegate_core::key::Fingerprint;

/// The secret of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHasher([u64; 2]);

/// The hash of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableHash(u64);

impl TableHasher {
    pub(crate) fn random() -> Self {
        Self([random_word(), random_word()])
    }

    /// One multiplication of the two halves, folded: universal over the secret, and the fingerprint
    /// is well mixed already.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "folding takes the two halves")]
    pub(crate) fn hash(&self, key: Fingerprint) -> TableHash {
        let product = u128::from(key.hi ^ self.0[0]) * u128::from(key.lo ^ self.0[1]);
        TableHash((product >> 64) as u64 ^ product as u64)
    }
}

impl TableHash {
    /// One of `shards`, a power of two, by the upper bits.
    #[inline]
    pub(crate) const fn shard(self, shards: usize) -> usize {
        (self.0 >> 44) as usize & (shards - 1)
    }

    /// Some bits that the shard and the home do not depend on; never zero.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "any eight bits will do")]
    pub(crate) const fn mark(self) -> u8 {
        (self.0 >> 33) as u8 | 1
    }

    /// One of `slots`, by the lower bits, scaled.
    #[inline]
    pub(crate) const fn home(self, slots: usize) -> usize {
        (((self.0 & 0xffff_ffff) * slots as u64) >> 32) as usize
    }
}

/// `std` seeds each `RandomState` from the system's random source.
#[cfg(not(loom))]
fn random_word() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A model must take the same way each time it is run.
#[cfg(loom)]
fn random_word() -> u64 {
    0x9e37_79b9_7f4a_7c15
}
