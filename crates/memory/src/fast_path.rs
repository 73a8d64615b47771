//! The fast path for the most common decisions: plain charges of buckets that have a slot.
//!
//! It decides while it holds the locks and computes the readings afterwards, without allocating a
//! vector or unpacking whole states. [`store`](crate::store) handles everything else.

use tidegate_core::batch::PlainBucket;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Role};
use tidegate_core::time::Clock;

use crate::cells::{MAX_SMALL_BATCH, SmallBatch};
use crate::hash::TableHash;
use crate::store::MemoryStore;

impl<C: Clock> MemoryStore<C> {
    /// Decides one plain charge of a bucket that has a slot. Returns `None` without changing
    /// anything for any other charge. Same as [`charge_small_batch`](Self::charge_small_batch), but
    /// without lock ordering.
    #[inline(never)]
    pub(crate) fn charge_one(&self, charge: &Charge<'_>, reading: &mut Reading) -> Option<()> {
        let early = self.monotonic_now();
        let key = charge.key.fingerprint;
        let hash = self.context.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let at = shard.find(key, hash)?;
        let (scale, level) = shard.level(at)?;
        let now = early.map_or_else(|| self.clock.now(), |now| shard.advance(now));
        let mut bucket = PlainBucket::evaluate(charge, scale, level, now)?;
        let passes = bucket.fits();
        if let Some(level) = bucket.settle(charge.role, passes) {
            shard.set_level(at, level, &self.context);
        }
        // The readings do not depend on the shards, so release the locks first.
        drop(shard);
        *reading = bucket.reading(charge, now);
        Some(())
    }

    /// Decides `N` plain charges whose keys all have a slot. Returns `None` without changing
    /// anything for any other batch. Charges never remove states, so the slots stay valid.
    #[inline(never)]
    pub(crate) fn charge_small_batch<const N: usize>(
        &self,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Option<()> {
        let charges = <&[Charge<'_>; N]>::try_from(charges).ok()?;
        let readings = <&mut [Reading; N]>::try_from(readings).ok()?;
        let early = self.monotonic_now();
        let hashes =
            charges.each_ref().map(|charge| self.context.hasher.hash(charge.key.fingerprint));
        let order = self.lock_order(hashes)?;
        let mut held = SmallBatch {
            shards: order.map(|next| self.shards[next / MAX_SMALL_BATCH].0.lock()),
            charge_indices: order.map(|next| next % MAX_SMALL_BATCH),
            slots: [0; N],
            context: &self.context,
        };
        held.find_slots(charges, &hashes)?;
        let now = self.advance_shards(early, &mut held.shards);
        let Some(mut buckets) = held.buckets(charges, now) else {
            held.charge(charges, now, readings);
            return Some(());
        };
        // From here on, arrays are in lock order.
        let roles = held.charge_indices.map(|i| charges[i].role);
        let refused = |k: usize| !buckets[k].fits() && roles[k] != Role::Shadow;
        let admitted = !(0..N).any(refused);
        for k in 0..N {
            let passes = admitted && buckets[k].fits();
            if let Some(level) = buckets[k].settle(roles[k], passes) {
                held.shards[k].set_level(held.slots[k], level, &self.context);
            }
        }
        // The readings do not depend on the shards, so release the locks first.
        let SmallBatch { shards, charge_indices, .. } = held;
        shards.into_iter().for_each(drop);
        for (i, bucket) in charge_indices.into_iter().zip(&buckets) {
            readings[i] = bucket.reading(&charges[i], now);
        }
        Some(())
    }

    /// The order in which to lock the shards, or `None` if two charges are in the same shard. Each
    /// element is a shard index times [`MAX_SMALL_BATCH`] plus a charge index.
    #[inline]
    fn lock_order<const N: usize>(&self, hashes: [TableHash; N]) -> Option<[usize; N]> {
        let mut order: [usize; N] =
            std::array::from_fn(|i| hashes[i].shard(self.shards.len()) * MAX_SMALL_BATCH + i);
        // A simple in-place sort: there are at most four elements.
        for end in 1..N {
            for i in (0..end).rev() {
                if order[i] > order[i + 1] {
                    order.swap(i, i + 1);
                }
            }
        }
        let distinct = |pair: &[usize]| pair[0] / MAX_SMALL_BATCH != pair[1] / MAX_SMALL_BATCH;
        order.windows(2).all(distinct).then_some(order)
    }
}
