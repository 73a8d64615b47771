//! The states of a batch as the core sees them, while their shards are locked.

use smallvec::SmallVec;
use tidegate_core::algorithm::State;
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::batch::{Cells, Part, PlainBucket};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::store::Charge;
use tidegate_core::time::Timestamp;

use crate::hash::TableHash;
use crate::overflow::{Bucket, Overflow};
use crate::shard::{Common, Shard, is_fresh};
use crate::store::reserve;
use crate::sync::Guard;

/// The one state of a plain charge, in a shard that has room for it.
pub(crate) struct One<'a, 'c> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) at: Option<usize>,
    pub(crate) charge: &'a Charge<'c>,
    pub(crate) hash: TableHash,
    pub(crate) common: &'a Common,
}

impl Cells for One<'_, '_> {
    fn look<R>(&mut self, _: usize, _: Part, see: impl FnOnce(Option<&State>) -> R) -> R {
        match self.at {
            Some(at) => self.shard.look(at, see),
            None => see(None),
        }
    }

    #[inline]
    fn level(&mut self, _: usize) -> Option<(ScaleId, Level)> {
        self.shard.level(self.at?)
    }

    #[inline]
    fn set_level(&mut self, _: usize, level: Level) {
        if let Some(at) = self.at {
            self.shard.set_level(at, level, self.common);
        }
    }

    #[inline]
    fn edit<R>(&mut self, _: usize, part: Part, change: impl FnOnce(&mut Option<State>) -> R) -> R {
        if part != Part::Main {
            return change(&mut None);
        }
        if let Some(at) = self.at {
            return self.shard.edit(at, self.common, change);
        }
        let mut state = None;
        let told = change(&mut state);
        if let Some(state) = state {
            let set_aside = reserve(self.charge, part);
            self.shard.insert(
                self.charge.key.fingerprint,
                self.hash,
                state,
                set_aside,
                self.common,
            );
        }
        told
    }
}

/// The most charges that [`Few`] takes.
pub(crate) const FEW: usize = 4;

/// The states of some plain charges in as many shards, every one of which has a place: no vectors,
/// nothing looked up twice. Most decisions are of this kind.
pub(crate) struct Few<'a, const N: usize> {
    /// The shards held, in the order they were locked.
    pub(crate) shards: [Guard<'a, Shard>; N],
    /// For each charge its shard's place among those, and its own place in the shard.
    pub(crate) places: [(usize, usize); N],
    pub(crate) common: &'a Common,
}

impl<const N: usize> Few<'_, N> {
    /// The buckets of the charges, if all are plain ones.
    #[inline]
    pub(crate) fn buckets<'c>(
        &self,
        charges: &[Charge<'c>; N],
        now: Timestamp,
    ) -> Option<[PlainBucket<'c>; N]> {
        let mut found = [self.bucket(charges, 0, now)?; N];
        for (i, bucket) in found.iter_mut().enumerate().skip(1) {
            *bucket = self.bucket(charges, i, now)?;
        }
        Some(found)
    }

    /// One of them; inlined, because out of line it goes through memory, field by field.
    #[inline(always)]
    fn bucket<'c>(
        &self,
        charges: &[Charge<'c>; N],
        i: usize,
        now: Timestamp,
    ) -> Option<PlainBucket<'c>> {
        let (shard, at) = self.places[i];
        let (scale, level) = self.shards[shard].level(at)?;
        PlainBucket::look(&charges[i], scale, level, now)
    }
}

impl<const N: usize> Cells for Few<'_, N> {
    fn look<R>(&mut self, charge: usize, _: Part, see: impl FnOnce(Option<&State>) -> R) -> R {
        let (shard, at) = self.places[charge];
        self.shards[shard].look(at, see)
    }

    #[inline]
    fn level(&mut self, charge: usize) -> Option<(ScaleId, Level)> {
        let (shard, at) = self.places[charge];
        self.shards[shard].level(at)
    }

    #[inline]
    fn set_level(&mut self, charge: usize, level: Level) {
        let (shard, at) = self.places[charge];
        self.shards[shard].set_level(at, level, self.common);
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        _: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let (shard, at) = self.places[charge];
        self.shards[shard].edit(at, self.common, change)
    }
}

/// Where one state of a batch is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) charge: usize,
    pub(crate) part: Part,
    pub(crate) key: Fingerprint,
    pub(crate) hash: TableHash,
    /// Its shard's place among those held.
    pub(crate) shard: usize,
    /// Its place in the shard, if it has one.
    pub(crate) at: Option<usize>,
    /// The table has no place for it: it goes to its overflow bucket.
    pub(crate) full: bool,
}

impl Cell {
    pub(crate) const fn new(charge: usize, part: Part, key: Fingerprint, hash: TableHash) -> Self {
        Self { charge, part, key, hash, shard: 0, at: None, full: false }
    }
}

/// All states of a batch, with every shard and overflow bucket held that they may need.
pub(crate) struct Many<'a, 'c> {
    pub(crate) charges: &'a [Charge<'c>],
    /// The counters themselves first, each at its charge's place, then warnings and bans.
    pub(crate) cells: SmallVec<[Cell; 4]>,
    pub(crate) shards: SmallVec<[Guard<'a, Shard>; 4]>,
    pub(crate) buckets: SmallVec<[(usize, Guard<'a, Bucket>); 4]>,
    pub(crate) overflow: &'a Overflow,
    pub(crate) common: &'a Common,
    pub(crate) now: Timestamp,
    /// Keys may no longer be where their cells say.
    pub(crate) moved: bool,
}

impl Many<'_, '_> {
    #[inline]
    fn cell(&self, charge: usize, part: Part) -> Option<Cell> {
        if part == Part::Main {
            return self.cells.get(charge).copied();
        }
        self.cells.iter().find(|cell| cell.charge == charge && cell.part == part).copied()
    }

    /// Where the cell is now: keys move when one is put in or removed.
    #[inline]
    fn place(&self, cell: &Cell) -> Option<usize> {
        if self.moved { self.shards[cell.shard].find(cell.key, cell.hash) } else { cell.at }
    }

    /// The state that keys without a place share, if there is one to start from.
    fn shared(&self, cell: &Cell) -> Option<&State> {
        let (_, bucket) =
            self.buckets.iter().find(|(index, _)| *index == Overflow::bucket_of(cell.hash))?;
        let state = bucket.get(self.charges[cell.charge].key.rule, cell.part);
        state.filter(|state| !is_fresh(Some(state), self.now))
    }
}

impl Cells for Many<'_, '_> {
    fn look<R>(&mut self, charge: usize, part: Part, see: impl FnOnce(Option<&State>) -> R) -> R {
        let Some(cell) = self.cell(charge, part) else { return see(None) };
        match self.place(&cell) {
            Some(at) => self.shards[cell.shard].look(at, see),
            None => see(self.shared(&cell)),
        }
    }

    #[inline]
    fn level(&mut self, charge: usize) -> Option<(ScaleId, Level)> {
        let cell = self.cell(charge, Part::Main)?;
        self.shards[cell.shard].level(self.place(&cell)?)
    }

    #[inline]
    fn set_level(&mut self, charge: usize, level: Level) {
        if let Some(cell) = self.cell(charge, Part::Main)
            && let Some(at) = self.place(&cell)
        {
            self.shards[cell.shard].set_level(at, level, self.common);
        }
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let Some(cell) = self.cell(charge, part) else { return change(&mut None) };
        if let Some(at) = self.place(&cell) {
            let shard = &mut self.shards[cell.shard];
            let before = shard.len();
            let told = shard.edit(at, self.common, change);
            self.moved |= shard.len() != before;
            return told;
        }
        let (key, bucket) = (self.charges[charge].key, Overflow::bucket_of(cell.hash));
        if cell.full
            && let Some((_, held)) = self.buckets.iter_mut().find(|(index, _)| *index == bucket)
        {
            return self.overflow.edit(held, key.rule, part, change);
        }
        let shared = self.shared(&cell).cloned();
        let mut state = shared.clone();
        let told = change(&mut state);
        if let Some(state) = state.filter(|state| Some(state) != shared.as_ref()) {
            let set_aside = reserve(&self.charges[charge], part);
            self.shards[cell.shard].insert(cell.key, cell.hash, state, set_aside, self.common);
            self.moved = true;
        }
        told
    }
}
