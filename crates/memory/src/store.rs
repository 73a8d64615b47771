//! The store: shards behind short locks, a batch decided while all of its shards are held.
//!
//! Locks are taken in ascending order, shards first and overflow buckets after them, so that two
//! batches never wait for each other. The times that a key sees never go back unless the clock
//! itself does: a clock that cannot is read before the locks are taken and each shard keeps the
//! latest instant it has seen; any other is read while they are held.

use smallvec::SmallVec;
use tidegate_core::algorithm::State;
use tidegate_core::batch::{self, Part};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock, Timestamp};

use crate::budget::Budget;
use crate::cells::{Cell, Many, One};
use crate::clock::FastClock;
use crate::hash::TableHasher;
use crate::overflow::{Bucket, Overflow};
use crate::shard::{Common, SLOT_BYTES, Shard};
use crate::side::log_bytes;
use crate::sync::{AtomicUsize, Guard, Lock, Ordering};

/// The memory that a store takes at most unless told otherwise.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// Keys a shard is meant to hold at most, so that growing one is short.
const KEYS_A_SHARD: u64 = 2_048;

/// Slots that one call of [`MemoryStore::sweep`] looks over in a shard.
const SWEEP_SLOTS: usize = 512;

/// Counters in this process.
#[derive(Debug)]
pub struct MemoryStore<C = FastClock> {
    pub(crate) clock: C,
    pub(crate) common: Common,
    pub(crate) shards: Box<[PaddedShard]>,
    overflow: Overflow,
    next_sweep: AtomicUsize,
}

/// A shard on cache lines of its own: neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PaddedShard(pub(crate) Lock<Shard>);

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Keys with a place of their own.
    pub keys: usize,
    /// States shared by keys for which there was no place.
    pub overflow: usize,
    /// Bytes taken.
    pub bytes: u64,
    /// Bytes that may be taken.
    pub max_bytes: u64,
    /// Keys that were dropped since the start, because they were equal to fresh.
    pub reclaimed: u64,
    /// How often since the start a key for which there was no place shared a state.
    pub overflowed: u64,
}

impl MemoryStore {
    /// A store on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(FastClock::new(), DEFAULT_MAX_BYTES)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// A store on a clock of the caller's, using at most so many bytes for counters.
    #[must_use]
    pub fn with_clock(clock: C, max_bytes: u64) -> Self {
        let wanted = max_bytes / (KEYS_A_SHARD * SLOT_BYTES);
        let shards = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(2, 4_096);
        Self::with_shards(clock, max_bytes, shards.next_power_of_two())
    }

    /// A store with a number of shards of the caller's; it is rounded up to a power of two.
    #[must_use]
    pub fn with_shards(clock: C, max_bytes: u64, shards: usize) -> Self {
        let shards = shards.next_power_of_two();
        Self {
            clock,
            common: Common { hasher: TableHasher::random(), budget: Budget::new(max_bytes) },
            shards: (0..shards).map(|_| PaddedShard(Lock::new(Shard::default()))).collect(),
            overflow: Overflow::new(),
            next_sweep: AtomicUsize::new(0),
        }
    }

    /// Does `op` to a batch; [`Store::apply`] without the waiting.
    #[inline]
    pub fn apply_now(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
        let plain = |charge: &Charge<'_>| charge.grace.is_none() && charge.ban.is_none();
        let done = match (charges, &mut *readings) {
            _ if op != Op::Charge || !charges.iter().all(plain) => None,
            ([charge], [reading]) => self.charge_one(charge, reading),
            ([_, _], readings) => self.charge_few::<2>(charges, readings),
            ([_, _, _], readings) => self.charge_few::<3>(charges, readings),
            ([_, _, _, _], readings) => self.charge_few::<4>(charges, readings),
            _ => None,
        };
        if done.is_none() {
            self.apply_any(op, charges, readings);
        }
    }

    /// A batch of any kind.
    #[inline(never)]
    fn apply_any(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
        let done = match charges {
            [charge] if charge.grace.is_none() && charge.ban.is_none() => {
                self.apply_one(op, charge, readings)
            }
            _ => false,
        };
        if !done {
            self.apply_many(op, charges, readings);
        }
    }

    /// One plain charge whose key has a place, or gets one, in its shard: no other lock is needed.
    #[inline]
    fn apply_one(&self, op: Op, charge: &Charge<'_>, readings: &mut [Reading]) -> bool {
        let early = self.clock_if_monotonic();
        let key = charge.key.fingerprint;
        let hash = self.common.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let now = early.map_or_else(|| self.clock.now(), |now| shard.advance(now));
        let at = shard.find(key, hash);
        if at.is_none()
            && (self.overflow.is_used()
                || !shard.make_room(1, reserve(charge, Part::Main), now, &self.common))
        {
            return false;
        }
        let mut cell = One { shard: &mut shard, at, charge, hash, common: &self.common };
        batch::apply(op, std::slice::from_ref(charge), now, &mut cell, readings);
        true
    }

    fn apply_many(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
        let mut cells: SmallVec<[Cell; 4]> = SmallVec::new();
        let mut add = |i: usize, charge: &Charge<'_>, part: Part| {
            let key = fingerprint(charge, part);
            cells.push(Cell::new(i, part, key, self.common.hasher.hash(key)));
        };
        // First the counters themselves, each at its charge's place.
        charges.iter().enumerate().for_each(|(i, charge)| add(i, charge, Part::Main));
        for (i, charge) in charges.iter().enumerate() {
            if charge.grace.is_some() {
                add(i, charge, Part::Grace);
            }
            if charge.ban.is_some() {
                add(i, charge, Part::Ban);
            }
        }
        let early = self.clock_if_monotonic();
        let mut shards = self.lock_shards(&mut cells);
        let now = self.settle_clock(early, &mut shards);
        let mut moved = false;
        let mut buckets = SmallVec::new();
        for cell in &mut cells {
            cell.at = shards[cell.shard].find(cell.key, cell.hash);
            moved |= cell.at.is_none();
        }
        if moved {
            buckets = self.make_places(op, charges, &mut cells, &mut shards, now);
        }
        let (overflow, common) = (&self.overflow, &self.common);
        let mut cells = Many { charges, cells, shards, buckets, overflow, common, now, moved };
        batch::apply(op, charges, now, &mut cells, readings);
    }

    /// Locks the shards of all cells in ascending order and tells each cell which is its own.
    fn lock_shards(&self, cells: &mut [Cell]) -> SmallVec<[Guard<'_, Shard>; 4]> {
        let index = |cell: &Cell| cell.hash.shard(self.shards.len());
        let mut held = SmallVec::new();
        let mut next = cells.iter().map(index).min();
        while let Some(this) = next {
            cells
                .iter_mut()
                .filter(|cell| index(cell) == this)
                .for_each(|cell| cell.shard = held.len());
            held.push(self.shards[this].0.lock());
            next = cells.iter().map(index).filter(|other| *other > this).min();
        }
        held
    }

    /// Makes a place for every cell that has none, and locks, in ascending order, the overflow
    /// buckets of those that get none or may start from one.
    fn make_places(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        cells: &mut [Cell],
        shards: &mut [Guard<'_, Shard>],
        now: Timestamp,
    ) -> SmallVec<[(usize, Guard<'_, Bucket>); 4]> {
        let mut wanted: SmallVec<[usize; 4]> = SmallVec::new();
        for i in 0..cells.len() {
            let cell = cells[i];
            if cell.at.is_some() {
                continue;
            }
            if op != Op::Peek {
                // Cells before this one may be about to take a place in the same shard.
                let before = cells[..i].iter().filter(|other| other.shard == cell.shard).count();
                let reserve = reserve(&charges[cell.charge], cell.part);
                let shard = &mut shards[cell.shard];
                cells[i].full = !shard.make_room(before + 1, reserve, now, &self.common);
            }
            if cells[i].full {
                self.overflow.overflow();
            }
            if cells[i].full || self.overflow.is_used() {
                wanted.push(Overflow::bucket_of(cell.hash));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.iter().map(|bucket| (*bucket, self.overflow.lock(*bucket))).collect()
    }

    /// The instant that counts for all of these shards, which are held: none of them goes back.
    #[inline]
    pub(crate) fn settle_clock(
        &self,
        early: Option<Timestamp>,
        shards: &mut [Guard<'_, Shard>],
    ) -> Timestamp {
        let Some(early) = early else { return self.clock.now() };
        let latest = shards.iter().map(|shard| shard.latest());
        let now = latest.fold(early, Timestamp::max);
        shards.iter_mut().for_each(|shard| _ = shard.advance(now));
        now
    }

    #[inline]
    pub(crate) fn clock_if_monotonic(&self) -> Option<Timestamp> {
        C::MONOTONIC.then(|| self.clock.now())
    }

    /// Removes some of what is equal to fresh: a bounded step on one shard, to be called again and
    /// again. Returns how many shards there are, so that a caller can pace a whole round.
    pub fn sweep(&self) -> usize {
        let next = self.next_sweep.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let now = self.clock.now();
        self.shards[next].0.lock().tidy(SWEEP_SLOTS, now, &self.common);
        if next == 0 {
            self.overflow.sweep(now);
        }
        self.shards.len()
    }

    /// What the store holds now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (mut keys, mut reclaimed) = (0, 0);
        for shard in &self.shards {
            let shard = shard.0.lock();
            keys += shard.len();
            reclaimed += shard.reclaimed();
        }
        Usage {
            keys,
            overflow: self.overflow.held(),
            bytes: self.common.budget.taken(),
            max_bytes: self.common.budget.most(),
            reclaimed,
            overflowed: self.overflow.overflowed(),
        }
    }

    /// Shows every key and state, shard by shard: decisions go on meanwhile.
    pub(crate) fn each(&self, mut see: impl FnMut(Fingerprint, &State)) {
        for shard in &self.shards {
            shard.0.lock().each(&mut see);
        }
    }

    /// Puts back a state that [`each`](Self::each) showed, if there is room for it.
    pub(crate) fn restore(&self, key: Fingerprint, state: State, reserve: u64) -> bool {
        let hash = self.common.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let known = shard.find(key, hash).is_some();
        if known || !shard.make_room(1, reserve, Timestamp::EPOCH, &self.common) {
            return false;
        }
        shard.insert(key, hash, state, reserve, &self.common);
        true
    }

    /// The clock that counts.
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    const IMMEDIATE: bool = true;

    #[inline]
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.apply_now(op, charges, readings);
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}

/// The name of one of a charge's states: the key's, told apart by the part.
fn fingerprint(charge: &Charge<'_>, part: Part) -> Fingerprint {
    let Fingerprint { hi, lo } = charge.key.fingerprint;
    Fingerprint { hi: hi ^ part as u64, lo }
}

/// Bytes to set aside beside the slot.
pub(crate) fn reserve(charge: &Charge<'_>, part: Part) -> u64 {
    let policy = match part {
        Part::Main => Some(charge.policy),
        Part::Grace => charge.grace,
        Part::Ban => None,
    };
    policy.and_then(Policy::log_entries).map_or(0, log_bytes)
}
