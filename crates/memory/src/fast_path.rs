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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::key::{Fingerprint, Key};
    use tidegate_core::policy::{Algorithm, Policy};
    use tidegate_core::quota::Quota;
    use tidegate_core::store::Op;
    use tidegate_core::time::{ManualClock, Micros};

    const BUCKET: Algorithm = Algorithm::TokenBucket;

    fn policy(algorithm: Algorithm) -> Policy {
        Policy::new(algorithm, Quota::new(100, Micros::from_secs(1))).unwrap()
    }

    fn charge(policy: &Policy, lo: u64) -> Charge<'_> {
        Charge::plain(Key::without_namespace("rule", Fingerprint { hi: 1, lo }), policy, 1)
    }

    /// A store, and the names of five keys: the first four are in different shards, the last is in
    /// the shard of the first.
    fn store_and_names() -> (MemoryStore<ManualClock>, [u64; 5]) {
        let store = MemoryStore::with_shards(ManualClock::default(), 1 << 20, 256);
        let shard =
            |lo| store.context.hasher.hash(Fingerprint { hi: 1, lo }).shard(store.shards.len());
        let mut names = vec![0];
        while names.len() < 4 {
            let last = names[names.len() - 1];
            let is_free = |lo: &u64| names.iter().all(|name| shard(*name) != shard(*lo));
            names.extend((last + 1..).find(is_free));
        }
        names.extend((names[3] + 1..).find(|lo| shard(*lo) == shard(0)));
        (store, std::array::from_fn(|i| names[i]))
    }

    /// The general path decides the same, but takes longer.
    #[test]
    fn placed_buckets_take_fast_path() {
        let ((store, names), policy) = (store_and_names(), policy(BUCKET));
        let charges = names.map(|name| charge(&policy, name));
        let mut readings = [Reading::default(); 5];
        let mut decide = |charges: &[Charge<'_>]| {
            let readings = &mut readings[..charges.len()];
            match charges {
                [charge] => store.charge_one(charge, &mut readings[0]),
                [_, _] => store.charge_small_batch::<2>(charges, readings),
                [_, _, _] => store.charge_small_batch::<3>(charges, readings),
                _ => store.charge_small_batch::<4>(charges, readings),
            }
        };
        assert!((1..=4).all(|count| decide(&charges[..count]).is_none()), "no key has a slot");
        store.apply_now(Op::Force, &charges, &mut [Reading::default(); 5]);
        assert!((1..=4).all(|count| decide(&charges[..count]).is_some()));
        assert!(decide(&[charges[0], charges[4]]).is_none(), "both keys are in one shard");
        store.apply_now(Op::Peek, &charges, &mut readings);
        assert_eq!(readings.map(|reading| reading.remaining), [95, 96, 97, 98, 99]);
    }

    /// Readings of whole buckets are computed after the locks are released.
    #[test]
    fn only_whole_buckets_are_read_as_buckets() {
        let (store, names) = store_and_names();
        let (bucket, window) = (policy(BUCKET), policy(Algorithm::FixedWindow));
        let buckets = [charge(&bucket, names[0]), charge(&bucket, names[1])];
        let mixed = [charge(&bucket, names[0]), charge(&window, names[2])];
        for charges in [buckets, mixed] {
            store.apply_now(Op::Force, &charges, &mut [Reading::default(); 2]);
            let hashes = charges.map(|charge| store.context.hasher.hash(charge.key.fingerprint));
            let order = store.lock_order(hashes).unwrap();
            assert!(order.is_sorted(), "batches on the general path lock in this order, too");
            let mut held = SmallBatch {
                shards: order.map(|next| store.shards[next / MAX_SMALL_BATCH].0.lock()),
                charge_indices: order.map(|next| next % MAX_SMALL_BATCH),
                slots: [0; 2],
                context: &store.context,
            };
            assert!(held.find_slots(&charges, &hashes).is_some());
            let is_read = held.buckets(&charges, store.clock().now()).is_some();
            assert_eq!(is_read, charges[1].policy == &bucket);
        }
    }
}
