//! The store: shards behind short locks. A batch is decided while all of its shards are locked.
//!
//! Locks are taken in ascending order, shards before overflow buckets, so two batches never
//! deadlock.
//!
//! The time that a key observes never goes back unless the clock does. A monotonic clock is read
//! before the locks are taken, and each shard records the latest instant it has seen. Any other
//! clock is read while the locks are held.

use smallvec::SmallVec;
use tidegate_core::algorithm::State;
use tidegate_core::batch::{self, StateKind};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock, Timestamp};

use crate::budget::MemoryBudget;
use crate::cells::{BatchCells, CellLocation, SingleCell};
use crate::clock::FastClock;
use crate::hash::TableHasher;
use crate::overflow::{OverflowBucket, OverflowTable};
use crate::shard::{SLOT_BYTES, TableContext, TableShard};
use crate::spill::log_bytes;
use crate::sync::{AtomicUsize, Guard, Ordering, SpinLock};

/// The default memory limit of a store.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// The number of keys a shard is designed for. Small shards grow quickly.
const KEYS_PER_SHARD: u64 = 2_048;

/// Slots that one call of [`MemoryStore::sweep`] checks in a shard.
const SWEEP_SLOTS: usize = 512;

/// A store that keeps its counters in this process.
#[derive(Debug)]
pub struct MemoryStore<C = FastClock> {
    pub(crate) clock: C,
    pub(crate) context: TableContext,
    pub(crate) shards: Box<[PaddedShard]>,
    overflow: OverflowTable,
    next_sweep: AtomicUsize,
}

/// A shard aligned to cache lines, to avoid false sharing between neighbours.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PaddedShard(pub(crate) SpinLock<TableShard>);

/// The size and statistics of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// Keys that have their own slot.
    pub keys: usize,
    /// States shared by keys that did not get a slot.
    pub overflow: usize,
    /// Bytes used.
    pub bytes: u64,
    /// Bytes allowed.
    pub max_bytes: u64,
    /// Expired keys removed since the start.
    pub reclaimed: u64,
    /// How often since the start a key did not get a slot and shared a state.
    pub overflowed: u64,
}

impl MemoryStore {
    /// A store with the default memory limit and clock.
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
    /// A store with the given clock, using at most `max_bytes` for counters.
    #[must_use]
    pub fn with_clock(clock: C, max_bytes: u64) -> Self {
        let wanted = max_bytes / (KEYS_PER_SHARD * SLOT_BYTES);
        let shards = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(2, 4_096);
        Self::with_shards(clock, max_bytes, shards.next_power_of_two())
    }

    /// A store with the given number of shards, rounded up to a power of two.
    #[must_use]
    pub fn with_shards(clock: C, max_bytes: u64, shards: usize) -> Self {
        let shards = shards.next_power_of_two();
        Self {
            clock,
            context: TableContext {
                hasher: TableHasher::random(),
                budget: MemoryBudget::new(max_bytes),
            },
            shards: (0..shards)
                .map(|_| PaddedShard(SpinLock::new(TableShard::default())))
                .collect(),
            overflow: OverflowTable::new(),
            next_sweep: AtomicUsize::new(0),
        }
    }

    /// Applies `op` to a batch. Same as [`Store::apply`], but synchronous.
    #[inline]
    pub fn apply_now(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
        let plain = |charge: &Charge<'_>| charge.grace.is_none() && charge.ban.is_none();
        let done = match (charges, &mut *readings) {
            _ if op != Op::Charge || !charges.iter().all(plain) => None,
            ([charge], [reading]) => self.charge_one(charge, reading),
            ([_, _], readings) => self.charge_small_batch::<2>(charges, readings),
            ([_, _, _], readings) => self.charge_small_batch::<3>(charges, readings),
            ([_, _, _, _], readings) => self.charge_small_batch::<4>(charges, readings),
            _ => None,
        };
        if done.is_none() {
            self.apply_general(op, charges, readings);
        }
    }

    /// Applies `op` to a batch of any kind.
    #[inline(never)]
    fn apply_general(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
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

    /// Applies `op` to one plain charge whose key has or gets a slot, so that only its shard's lock
    /// is needed. Returns false without changing anything if the key would need an overflow bucket.
    #[inline]
    fn apply_one(&self, op: Op, charge: &Charge<'_>, readings: &mut [Reading]) -> bool {
        let early = self.monotonic_now();
        let key = charge.key.fingerprint;
        let hash = self.context.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let now = early.map_or_else(|| self.clock.now(), |now| shard.advance(now));
        let at = shard.find(key, hash);
        if at.is_none()
            && (self.overflow.is_used()
                || !shard.make_room(1, reserved_bytes(charge, StateKind::Main), now, &self.context))
        {
            return false;
        }
        let mut cell =
            SingleCell { shard: &mut shard, slot: at, charge, hash, context: &self.context };
        batch::apply(op, std::slice::from_ref(charge), now, &mut cell, readings);
        true
    }

    fn apply_many(&self, op: Op, charges: &[Charge<'_>], readings: &mut [Reading]) {
        let mut cells: SmallVec<[CellLocation; 4]> = SmallVec::new();
        let mut add = |i: usize, charge: &Charge<'_>, part: StateKind| {
            let key = state_fingerprint(charge, part);
            cells.push(CellLocation::new(i, part, key, self.context.hasher.hash(key)));
        };
        // The main counters come first, each at the index of its charge.
        charges.iter().enumerate().for_each(|(i, charge)| add(i, charge, StateKind::Main));
        for (i, charge) in charges.iter().enumerate() {
            if charge.grace.is_some() {
                add(i, charge, StateKind::Grace);
            }
            if charge.ban.is_some() {
                add(i, charge, StateKind::Ban);
            }
        }
        let early = self.monotonic_now();
        let mut shards = self.lock_shards(&mut cells);
        let now = self.advance_shards(early, &mut shards);
        let mut moved = false;
        let mut buckets = SmallVec::new();
        for cell in &mut cells {
            cell.slot = shards[cell.shard].find(cell.key, cell.hash);
            moved |= cell.slot.is_none();
        }
        if moved {
            buckets = self.allocate_slots(op, charges, &mut cells, &mut shards, now);
        }
        let (overflow, context) = (&self.overflow, &self.context);
        let mut cells =
            BatchCells { charges, cells, shards, buckets, overflow, context, now, moved };
        batch::apply(op, charges, now, &mut cells, readings);
    }

    /// Locks the shards of all cells in ascending order and sets each cell's shard index.
    fn lock_shards(&self, cells: &mut [CellLocation]) -> SmallVec<[Guard<'_, TableShard>; 4]> {
        let index = |cell: &CellLocation| cell.hash.shard(self.shards.len());
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

    /// Makes room for every cell that has no slot. Then locks, in ascending order, the overflow
    /// buckets of the cells that get no slot or may start from a shared state.
    fn allocate_slots(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        cells: &mut [CellLocation],
        shards: &mut [Guard<'_, TableShard>],
        now: Timestamp,
    ) -> SmallVec<[(usize, Guard<'_, OverflowBucket>); 4]> {
        let mut wanted: SmallVec<[usize; 4]> = SmallVec::new();
        for i in 0..cells.len() {
            let cell = cells[i];
            if cell.slot.is_some() {
                continue;
            }
            if op != Op::Peek {
                // Cells before this one may be about to take a slot in the same shard.
                let before = cells[..i].iter().filter(|other| other.shard == cell.shard).count();
                let reserve = reserved_bytes(&charges[cell.charge], cell.part);
                let shard = &mut shards[cell.shard];
                cells[i].overflows = !shard.make_room(before + 1, reserve, now, &self.context);
            }
            if cells[i].overflows {
                self.overflow.record_overflow();
            }
            if cells[i].overflows || self.overflow.is_used() {
                wanted.push(OverflowTable::bucket_index(cell.hash));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.iter().map(|bucket| (*bucket, self.overflow.lock(*bucket))).collect()
    }

    /// The time of the decision for all of these locked shards. It is not earlier than the latest
    /// instant that any of them has seen.
    #[inline]
    pub(crate) fn advance_shards(
        &self,
        early: Option<Timestamp>,
        shards: &mut [Guard<'_, TableShard>],
    ) -> Timestamp {
        let Some(early) = early else { return self.clock.now() };
        let latest = shards.iter().map(|shard| shard.latest());
        let now = latest.fold(early, Timestamp::max);
        shards.iter_mut().for_each(|shard| _ = shard.advance(now));
        now
    }

    #[inline]
    pub(crate) fn monotonic_now(&self) -> Option<Timestamp> {
        C::MONOTONIC.then(|| self.clock.now())
    }

    /// Removes some expired states: a bounded step on one shard, to be called repeatedly. Returns
    /// the number of shards, so that the caller can pace a whole round.
    pub fn sweep(&self) -> usize {
        let next = self.next_sweep.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let now = self.clock.now();
        self.shards[next].0.lock().sweep_and_shrink(SWEEP_SLOTS, now, &self.context);
        if next == 0 {
            self.overflow.sweep(now);
        }
        self.shards.len()
    }

    /// The current size and statistics.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        let (mut keys, mut reclaimed) = (0, 0);
        for shard in &self.shards {
            let shard = shard.0.lock();
            keys += shard.len();
            reclaimed += shard.reclaimed();
        }
        StoreUsage {
            keys,
            overflow: self.overflow.state_count(),
            bytes: self.context.budget.used(),
            max_bytes: self.context.budget.max_bytes(),
            reclaimed,
            overflowed: self.overflow.overflow_count(),
        }
    }

    /// Passes every key and state to `see`, locking one shard at a time, so that decisions
    /// continue.
    pub(crate) fn for_each_state(&self, mut see: impl FnMut(Fingerprint, &State)) {
        for shard in &self.shards {
            shard.0.lock().for_each(&mut see);
        }
    }

    /// Inserts a state from a snapshot. Returns false if the key exists or there is no room.
    pub(crate) fn restore(&self, key: Fingerprint, state: State, reserve: u64) -> bool {
        let hash = self.context.hasher.hash(key);
        let mut shard = self.shards[hash.shard(self.shards.len())].0.lock();
        let exists = shard.find(key, hash).is_some();
        if exists || !shard.make_room(1, reserve, Timestamp::EPOCH, &self.context) {
            return false;
        }
        shard.insert(key, hash, state, reserve, &self.context);
        true
    }

    /// The store's clock.
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

/// The fingerprint of one of a charge's states: the key's fingerprint, varied by kind.
fn state_fingerprint(charge: &Charge<'_>, part: StateKind) -> Fingerprint {
    let Fingerprint { hi, lo } = charge.key.fingerprint;
    Fingerprint { hi: hi ^ part as u64, lo }
}

/// Bytes to reserve in addition to the slot.
pub(crate) fn reserved_bytes(charge: &Charge<'_>, part: StateKind) -> u64 {
    let policy = match part {
        StateKind::Main => Some(charge.policy),
        StateKind::Grace => charge.grace,
        StateKind::Ban => None,
    };
    policy.and_then(Policy::max_log_entries).map_or(0, log_bytes)
}
