//! A map from counters to their state on this node, in shards with one lock each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

const SHARDS: usize = 64;

/// How often a counter is swept in its period (the `ttl` of its leases, or its flush interval), if
/// the caller sweeps that often. Long periods have many counters, so each is visited less often.
const SWEEPS_IN_PERIOD: u64 = 16;

/// A map for concurrent use.
#[derive(Debug)]
pub(crate) struct CounterShards<C>(Box<[Mutex<CounterShard<C>>]>);

/// The part of a map behind one lock.
#[derive(Debug)]
pub(crate) struct CounterShard<C> {
    counters: CounterMap<C>,
    sweep_at: Timestamp,
}

type CounterMap<C> = HashMap<Fingerprint, C, BuildHasherDefault<FingerprintHasher>>;

impl<C> CounterShards<C> {
    /// Bytes of an entry, estimated.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Fingerprint>() + size_of::<C>() + 64;

    pub(crate) fn new() -> Self {
        let shard = || CounterShard { counters: CounterMap::default(), sweep_at: Timestamp::EPOCH };
        Self((0..SHARDS).map(|_| Mutex::new(shard())).collect())
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

    /// Visits the counters of all shards that are due. `visit` returns the period of a counter, or
    /// `None` to forget it.
    pub(crate) fn sweep(
        &self,
        now: Timestamp,
        mut visit: impl FnMut(&Fingerprint, &mut C) -> Option<Micros>,
    ) {
        for mut shard in self.iter().filter(|shard| shard.sweep_at <= now) {
            shard.sweep_at = Timestamp::from_micros(u64::MAX);
            let CounterShard { counters, sweep_at } = &mut *shard;
            counters.retain(|key, counter| {
                let period = visit(key, counter);
                *sweep_at = period.map_or(*sweep_at, |it| (*sweep_at).min(next_sweep(it, now)));
                period.is_some()
            });
        }
    }
}

impl<C> CounterShard<C> {
    /// The counter with this key, or a new one with the period that `counter` returns.
    pub(crate) fn get_or_try_insert_with(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        counter: impl FnOnce() -> Option<(Micros, C)>,
    ) -> Option<&mut C> {
        match self.counters.entry(key) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                let (period, counter) = counter()?;
                self.sweep_at = self.sweep_at.min(next_sweep(period, now));
                Some(new.insert(counter))
            }
        }
    }

    /// The counter with this key; a new one with this period if there is none.
    pub(crate) fn get_or_insert_with(
        &mut self,
        key: Fingerprint,
        period: Micros,
        now: Timestamp,
        counter: impl FnOnce() -> C,
    ) -> &mut C {
        self.sweep_at = self.sweep_at.min(next_sweep(period, now));
        self.counters.entry(key).or_insert_with(counter)
    }
}

fn next_sweep(period: Micros, now: Timestamp) -> Timestamp {
    now.plus(Micros::new(period.get() / SWEEPS_IN_PERIOD))
}

impl<C> Deref for CounterShard<C> {
    type Target = CounterMap<C>;

    fn deref(&self) -> &Self::Target {
        &self.counters
    }
}

impl<C> DerefMut for CounterShard<C> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.counters
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

    /// A shard is swept 16 times in the shortest period of its counters, and at once when a
    /// counter with a shorter one is added.
    #[test]
    fn sweeps_follow_shortest_period() {
        let shards = CounterShards::<Micros>::new();
        let key = |lo| Fingerprint { hi: 0, lo };
        let at = Timestamp::from_micros;
        let insert = |lo, period, now| {
            let period = Micros::new(period);
            shards.lock(key(lo)).get_or_insert_with(key(lo), period, at(now), || period);
        };
        let visits = |now| {
            let mut visits = 0;
            shards.sweep(at(now), |_, period| {
                visits += 1;
                Some(*period)
            });
            visits
        };
        insert(1, 160, 0);
        assert_eq!([0, 9, 10, 19, 20].map(visits), [1, 0, 1, 0, 1]);
        insert(2, 16, 21);
        assert_eq!([21, 22, 22, 23].map(visits), [0, 2, 0, 2]);
        shards.sweep(at(24), |key, period| (key.lo == 1).then_some(*period));
        assert_eq!([33, 34].map(visits), [0, 1], "only the longer period is left");
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
