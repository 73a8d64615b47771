//! Implementations of [`Cells`]: access to the states of a batch while their shards are locked.

use smallvec::SmallVec;
use tidegate_core::algorithm::State;
use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::batch::{self, Cells, PlainBucket, StateKind};
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Timestamp;

use crate::hash::TableHash;
use crate::overflow::{OverflowBucket, OverflowTable};
use crate::shard::{TableContext, TableShard, is_expired};
use crate::store::reserved_bytes;
use crate::sync::Guard;

/// The single state of a plain charge, in a shard that has room for it. Buckets that have a slot
/// are decided before ([`charge_one`](crate::store::MemoryStore::charge_one)).
pub(crate) struct SingleCell<'a, 'c> {
    pub(crate) shard: &'a mut TableShard,
    pub(crate) slot: Option<usize>,
    pub(crate) charge: &'a Charge<'c>,
    pub(crate) hash: TableHash,
    pub(crate) context: &'a TableContext,
}

impl Cells for SingleCell<'_, '_> {
    fn read<R>(&mut self, _: usize, _: StateKind, see: impl FnOnce(Option<&State>) -> R) -> R {
        match self.slot {
            Some(at) => self.shard.read_state(at, see),
            None => see(None),
        }
    }

    #[inline]
    fn edit<R>(
        &mut self,
        _: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        if part != StateKind::Main {
            return change(&mut None);
        }
        if let Some(at) = self.slot {
            return self.shard.edit(at, self.context, change);
        }
        let mut state = None;
        let result = change(&mut state);
        if let Some(state) = state {
            let reserve = reserved_bytes(self.charge, part);
            self.shard.insert(self.charge.key.fingerprint, self.hash, state, reserve, self.context);
        }
        result
    }
}

/// The most charges in a [`SmallBatch`].
pub(crate) const MAX_SMALL_BATCH: usize = 4;

/// The states of `N` plain charges in `N` different shards, all of which have a slot. It needs no
/// vectors and no second lookups. Most decisions are of this kind.
pub(crate) struct SmallBatch<'a, const N: usize> {
    /// The locked shards, in lock order.
    pub(crate) shards: [Guard<'a, TableShard>; N],
    /// For each shard, the index of its charge.
    pub(crate) charge_indices: [usize; N],
    /// For each shard, the slot of the charge's key.
    pub(crate) slots: [usize; N],
    pub(crate) context: &'a TableContext,
}

impl<const N: usize> SmallBatch<'_, N> {
    /// Finds the slots of all keys, or returns `None` if one has no slot.
    #[inline]
    pub(crate) fn find_slots(
        &mut self,
        charges: &[Charge<'_>; N],
        hashes: &[TableHash; N],
    ) -> Option<()> {
        for k in 0..N {
            let i = self.charge_indices[k];
            self.slots[k] = self.shards[k].find(charges[i].key.fingerprint, hashes[i])?;
        }
        Some(())
    }

    /// The buckets of the charges in lock order, if all are policing buckets.
    #[inline]
    pub(crate) fn buckets<'c>(
        &self,
        charges: &[Charge<'c>; N],
        now: Timestamp,
    ) -> Option<[PlainBucket<'c>; N]> {
        let mut found = [self.bucket(charges, 0, now)?; N];
        for (k, bucket) in found.iter_mut().enumerate().skip(1) {
            *bucket = self.bucket(charges, k, now)?;
        }
        Some(found)
    }

    /// The bucket of the `k`th shard. Inlined, because a call would copy each field through memory.
    #[inline(always)]
    fn bucket<'c>(
        &self,
        charges: &[Charge<'c>; N],
        k: usize,
        now: Timestamp,
    ) -> Option<PlainBucket<'c>> {
        let (scale, level) = self.shards[k].level(self.slots[k])?;
        PlainBucket::evaluate(&charges[self.charge_indices[k]], scale, level, now)
    }

    /// Charges all or none, for any kind of policy. Not inlined, to keep the code for plain buckets
    /// small.
    #[inline(never)]
    pub(crate) fn charge(
        &mut self,
        charges: &[Charge<'_>; N],
        now: Timestamp,
        readings: &mut [Reading; N],
    ) {
        batch::apply(Op::Charge, charges, now, self, readings);
    }

    /// The shard and slot of a charge.
    fn locate(&mut self, charge: usize) -> (&mut TableShard, usize) {
        let k = self.charge_indices.iter().position(|i| *i == charge).unwrap_or_default();
        (&mut self.shards[k], self.slots[k])
    }
}

impl<const N: usize> Cells for SmallBatch<'_, N> {
    fn read<R>(&mut self, charge: usize, _: StateKind, see: impl FnOnce(Option<&State>) -> R) -> R {
        let (shard, at) = self.locate(charge);
        shard.read_state(at, see)
    }

    fn level(&mut self, charge: usize) -> Option<(ScaleId, BucketLevel)> {
        let (shard, at) = self.locate(charge);
        shard.level(at)
    }

    fn set_level(&mut self, charge: usize, level: BucketLevel) {
        let context = self.context;
        let (shard, at) = self.locate(charge);
        shard.set_level(at, level, context);
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        _: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let context = self.context;
        let (shard, at) = self.locate(charge);
        shard.edit(at, context, change)
    }
}

/// The location of one state of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellLocation {
    pub(crate) charge: usize,
    pub(crate) part: StateKind,
    pub(crate) key: Fingerprint,
    pub(crate) hash: TableHash,
    /// Index of its shard among the locked shards.
    pub(crate) shard: usize,
    /// Its slot in the shard, if it has one.
    pub(crate) slot: Option<usize>,
    /// The table has no room for it, so it goes to its overflow bucket.
    pub(crate) overflows: bool,
}

impl CellLocation {
    pub(crate) const fn new(
        charge: usize,
        part: StateKind,
        key: Fingerprint,
        hash: TableHash,
    ) -> Self {
        Self { charge, part, key, hash, shard: 0, slot: None, overflows: false }
    }
}

/// All states of a batch, with every shard and overflow bucket locked that they may need.
pub(crate) struct BatchCells<'a, 'c> {
    pub(crate) charges: &'a [Charge<'c>],
    /// The main counters first, each at the index of its charge, then warnings and bans.
    pub(crate) cells: SmallVec<[CellLocation; 4]>,
    pub(crate) shards: SmallVec<[Guard<'a, TableShard>; 4]>,
    pub(crate) buckets: SmallVec<[(usize, Guard<'a, OverflowBucket>); 4]>,
    pub(crate) overflow: &'a OverflowTable,
    pub(crate) context: &'a TableContext,
    pub(crate) now: Timestamp,
    /// Whether keys may have moved to other slots than those in `cells`.
    pub(crate) moved: bool,
}

impl BatchCells<'_, '_> {
    #[inline]
    fn cell(&self, charge: usize, part: StateKind) -> Option<CellLocation> {
        if part == StateKind::Main {
            return self.cells.get(charge).copied();
        }
        self.cells.iter().find(|cell| cell.charge == charge && cell.part == part).copied()
    }

    /// The current slot of a cell. Keys move when one is inserted or removed.
    #[inline]
    fn locate(&self, cell: &CellLocation) -> Option<usize> {
        if self.moved { self.shards[cell.shard].find(cell.key, cell.hash) } else { cell.slot }
    }

    /// The unexpired state in the cell's overflow bucket, if any.
    fn overflow_state(&self, cell: &CellLocation) -> Option<&State> {
        let (_, bucket) = self
            .buckets
            .iter()
            .find(|(index, _)| *index == OverflowTable::bucket_index(cell.hash))?;
        let state = bucket.get(self.charges[cell.charge].key.rule, cell.part);
        state.filter(|state| !is_expired(Some(state), self.now))
    }
}

impl Cells for BatchCells<'_, '_> {
    fn read<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        see: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        let Some(cell) = self.cell(charge, part) else { return see(None) };
        match self.locate(&cell) {
            Some(at) => self.shards[cell.shard].read_state(at, see),
            None => see(self.overflow_state(&cell)),
        }
    }

    #[inline]
    fn level(&mut self, charge: usize) -> Option<(ScaleId, BucketLevel)> {
        let cell = self.cell(charge, StateKind::Main)?;
        self.shards[cell.shard].level(self.locate(&cell)?)
    }

    #[inline]
    fn set_level(&mut self, charge: usize, level: BucketLevel) {
        if let Some(cell) = self.cell(charge, StateKind::Main)
            && let Some(at) = self.locate(&cell)
        {
            self.shards[cell.shard].set_level(at, level, self.context);
        }
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let Some(cell) = self.cell(charge, part) else { return change(&mut None) };
        if let Some(at) = self.locate(&cell) {
            let shard = &mut self.shards[cell.shard];
            let before = shard.len();
            let result = shard.edit(at, self.context, change);
            self.moved |= shard.len() != before;
            return result;
        }
        let (key, bucket) = (self.charges[charge].key, OverflowTable::bucket_index(cell.hash));
        if cell.overflows
            && let Some((_, held)) = self.buckets.iter_mut().find(|(index, _)| *index == bucket)
        {
            return self.overflow.edit(held, key.rule, part, change);
        }
        let shared = self.overflow_state(&cell).cloned();
        let mut state = shared.clone();
        let result = change(&mut state);
        if let Some(state) = state.filter(|state| Some(state) != shared.as_ref()) {
            let reserve = reserved_bytes(&self.charges[charge], part);
            self.shards[cell.shard].insert(cell.key, cell.hash, state, reserve, self.context);
            self.moved = true;
        }
        result
    }
}
