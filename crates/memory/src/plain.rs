//! Plain charges of buckets that have a place, which most decisions are: decided under the locks and
//! told after them, without a vector or a look at whole states. What is anything else is left to
//! [`store`](crate::store).

use tidegate_core::batch::PlainBucket;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Role};
use tidegate_core::time::Clock;

use crate::cells::{FEW, Few};
use crate::hash::TableHash;
use crate::store::MemoryStore;

impl<C: Clock> MemoryStore<C> {
    /// One plain charge of a bucket that has a place, which most decisions are; otherwise nothing is
    /// done. The same as [`charge_few`](Self::charge_few), with nothing to put in order.
    #[inline(never)]
    pub(crate) fn charge_one(&self, charge: &Charge<'_>, reading: &mut Reading) -> Option<()> {
        let early = self.clock_if_monotonic();
        let key = charge.key.fingerprint;
        let hash = self.common.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let at = shard.find(key, hash)?;
        let (scale, level) = shard.level(at)?;
        let now = early.map_or_else(|| self.clock.now(), |now| shard.advance(now));
        let mut bucket = PlainBucket::look(charge, scale, level, now)?;
        let passes = bucket.fits();
        if let Some(level) = bucket.settle(charge.role, passes) {
            shard.set_level(at, level, &self.common);
        }
        // What is left to work out concerns nobody else.
        drop(shard);
        *reading = bucket.reading(charge, now);
        Some(())
    }

    /// Some plain charges whose keys all have a place; otherwise nothing is done. A charge never
    /// removes a state, so places stay what they are.
    #[inline(never)]
    pub(crate) fn charge_few<const N: usize>(
        &self,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Option<()> {
        let charges = <&[Charge<'_>; N]>::try_from(charges).ok()?;
        let readings = <&mut [Reading; N]>::try_from(readings).ok()?;
        let early = self.clock_if_monotonic();
        let hashes =
            charges.each_ref().map(|charge| self.common.hasher.hash(charge.key.fingerprint));
        let order = self.lock_order(hashes)?;
        let mut held = Few {
            shards: order.map(|next| self.shards[next / FEW].0.lock()),
            whose: order.map(|next| next % FEW),
            places: [0; N],
            common: &self.common,
        };
        held.find(charges, &hashes)?;
        let now = self.settle_clock(early, &mut held.shards);
        let Some(mut buckets) = held.buckets(charges, now) else {
            held.charge(charges, now, readings);
            return Some(());
        };
        // From here on everything is in the order of the locks.
        let roles = held.whose.map(|i| charges[i].role);
        let refused = |k: usize| !buckets[k].fits() && roles[k] != Role::Shadow;
        let admitted = !(0..N).any(refused);
        for k in 0..N {
            let passes = admitted && buckets[k].fits();
            if let Some(level) = buckets[k].settle(roles[k], passes) {
                held.shards[k].set_level(held.places[k], level, &self.common);
            }
        }
        // What is left to work out concerns nobody else.
        let Few { shards, whose, .. } = held;
        shards.into_iter().for_each(drop);
        for (i, bucket) in whose.into_iter().zip(&buckets) {
            readings[i] = bucket.reading(&charges[i], now);
        }
        Some(())
    }

    /// The shards and charges, each pair as one number, in the order in which to lock them, if no two
    /// are in the same shard.
    #[inline]
    fn lock_order<const N: usize>(&self, hashes: [TableHash; N]) -> Option<[usize; N]> {
        let mut order: [usize; N] =
            std::array::from_fn(|i| hashes[i].shard(self.shards.len()) * FEW + i);
        // Sorted as they stand: there are two or three of them.
        for end in 1..N {
            for i in (0..end).rev() {
                if order[i] > order[i + 1] {
                    order.swap(i, i + 1);
                }
            }
        }
        let apart = |pair: &[usize]| pair[0] / FEW != pair[1] / FEW;
        order.windows(2).all(apart).then_some(order)
    }
}
