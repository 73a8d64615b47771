//! One shard: an open-addressed table that grows by an eighth and removes expired states.
//!
//! It uses linear probing at a load of at most four fifths. A key's home slot is its hash scaled to
//! the table, so sizes need not be powers of two and memory follows the number of keys closely. A
//! one-byte tag per slot distinguishes most keys, so a lookup usually touches only one slot. Shards
//! are small, so they grow quickly. A shard does no locking itself.

use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::{Micros, Timestamp};

use crate::budget::MemoryBudget;
use crate::hash::{TableHash, TableHasher};
use crate::slot::{SlotContent, TableSlot};
use crate::spill::SpillArea;

/// How many slots an insert checks for expired states.
const SWEEP_STEP: usize = 4;

/// How long an expired state is kept unless its slot is needed. A key that returns regularly should
/// not be removed and inserted each time.
const EVICTION_DELAY: Micros = Micros::from_secs(5);

/// Bytes per slot, including its tag.
pub(crate) const SLOT_BYTES: u64 = size_of::<TableSlot>() as u64 + 1;

/// The tag of an empty slot. Other tags are never zero.
const EMPTY_TAG: u8 = 0;

/// Shared by all shards of a table.
#[derive(Debug)]
pub(crate) struct TableContext {
    pub(crate) hasher: TableHasher,
    pub(crate) budget: MemoryBudget,
}

#[derive(Debug, Default)]
pub(crate) struct TableShard {
    /// For each slot, [`EMPTY_TAG`] or some bits of its key's hash.
    tags: Box<[u8]>,
    slots: Box<[TableSlot]>,
    used: u32,
    /// Where the next sweep continues.
    cursor: u32,
    /// The latest instant at which any of its keys was used.
    latest: Timestamp,
    /// Boxed, so that a shard fits into a cache line.
    cold: Box<ColdFields>,
}

/// Rarely used fields.
#[derive(Debug, Default)]
struct ColdFields {
    /// Until this instant, a full shard has no expired states.
    no_room_before: Timestamp,
    spill: SpillArea,
    /// Number of expired keys removed.
    reclaimed: u64,
}

impl TableShard {
    pub(crate) const fn len(&self) -> usize {
        self.used as usize
    }

    /// Number of expired keys removed since the start.
    pub(crate) const fn reclaimed(&self) -> u64 {
        self.cold.reclaimed
    }

    #[inline]
    pub(crate) const fn latest(&self) -> Timestamp {
        self.latest
    }

    /// The time to use when `now` was read before the lock was taken. A thread that waited for the
    /// lock must not move its keys back in time.
    #[inline]
    pub(crate) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    #[inline]
    pub(crate) fn find(&self, key: Fingerprint, hash: TableHash) -> Option<usize> {
        self.probe(key, hash).ok()
    }

    /// Passes the state in a slot that `find` returned to `see`.
    #[inline]
    pub(crate) fn read_state<R>(&self, at: usize, see: impl FnOnce(Option<&State>) -> R) -> R {
        match self.slots[at].unpack() {
            SlotContent::State(state) => see(Some(&state)),
            SlotContent::Spilled(index) => see(self.cold.spill.state(index)),
        }
    }

    /// The level in a slot that `find` returned, if it holds a bucket.
    #[inline]
    pub(crate) fn level(&self, at: usize) -> Option<(ScaleId, BucketLevel)> {
        self.slots[at].level()
    }

    /// Replaces the level in a slot for which [`level`](Self::level) returned one.
    #[inline]
    pub(crate) fn set_level(&mut self, at: usize, level: BucketLevel, context: &TableContext) {
        if !self.slots[at].set_level(level) {
            self.spill_level(at, level, context);
        }
    }

    /// Moves a state to the spill area, because its new level does not fit into a slot.
    #[cold]
    fn spill_level(&mut self, at: usize, level: BucketLevel, context: &TableContext) {
        self.edit(at, context, |state| {
            if let Some(state) = state {
                state.tally = Tally::Bucket(level);
            }
        });
    }

    /// Passes the state in a slot that `find` returned to `change` and stores the result.
    #[inline]
    pub(crate) fn edit<R>(
        &mut self,
        at: usize,
        context: &TableContext,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let (mut state, spill_index) = match self.slots[at].unpack() {
            SlotContent::State(state) => (Some(state), None),
            SlotContent::Spilled(index) => (self.cold.spill.take(index), Some(index)),
        };
        let result = change(&mut state);
        match state {
            Some(state) => {
                self.slots[at] = self.pack(self.slots[at].key, state, spill_index, 0, context);
            }
            None => self.remove(at, context),
        }
        result
    }

    /// Packs a state into a slot, or puts it into the spill area if it does not fit.
    #[inline]
    fn pack(
        &mut self,
        key: Fingerprint,
        state: State,
        spill_index: Option<usize>,
        reserve: u64,
        context: &TableContext,
    ) -> TableSlot {
        let spill = &mut self.cold.spill;
        if let Some(slot) = TableSlot::pack(key, &state) {
            if let Some(index) = spill_index {
                spill.free(index, &context.budget);
            }
            return slot;
        }
        TableSlot::spilled(key, spill.put(spill_index, state, reserve, &context.budget))
    }

    /// Inserts a new state. The caller has made room for it.
    pub(crate) fn insert(
        &mut self,
        key: Fingerprint,
        hash: TableHash,
        state: State,
        reserve: u64,
        context: &TableContext,
    ) {
        if let Err(Some(at)) = self.probe(key, hash) {
            self.slots[at] = self.pack(key, state, None, reserve, context);
            self.tags[at] = hash.tag();
            self.used += 1;
        }
    }

    /// Makes room for `keys` more keys: removes some expired states, and grows if the budget
    /// allows. Returns whether there is room.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        keys: usize,
        reserve: u64,
        now: Timestamp,
        context: &TableContext,
    ) -> bool {
        self.sweep(SWEEP_STEP, now.minus(EVICTION_DELAY), context);
        if reserve > 0 && !context.budget.can_reserve(reserve) {
            return false;
        }
        if self.has_slots(keys) {
            return true;
        }
        let grown = self.slots.len() + self.slots.len() / 8 + 8 * keys;
        let bytes = (grown - self.slots.len()) as u64 * SLOT_BYTES;
        let has_room = context.budget.can_reserve(reserve.saturating_add(bytes));
        if has_room && context.budget.try_reserve(bytes) {
            self.rebuild(grown, &context.hasher);
            return true;
        }
        self.sweep_for_room(now, context);
        self.has_slots(keys)
    }

    /// Sweeps the whole shard for expired states, then not again until the next state can expire.
    /// Otherwise each new key of a flood would pay for a full sweep.
    fn sweep_for_room(&mut self, now: Timestamp, context: &TableContext) {
        if now < self.cold.no_room_before {
            return;
        }
        self.sweep(self.slots.len(), now, context);
        let mut earliest = Timestamp::from_micros(u64::MAX);
        self.for_each(|_, state| earliest = earliest.min(state.expires_at()));
        self.cold.no_room_before = earliest;
    }

    /// Checks `steps` slots, removes states that expired a while ago, and shrinks a sparse table.
    pub(crate) fn sweep_and_shrink(
        &mut self,
        steps: usize,
        now: Timestamp,
        context: &TableContext,
    ) {
        self.sweep(steps, now.minus(EVICTION_DELAY), context);
        self.shrink(context);
    }

    /// Checks `steps` slots and removes the states that have expired at `now`.
    fn sweep(&mut self, steps: usize, now: Timestamp, context: &TableContext) {
        for _ in 0..steps.min(self.slots.len()) {
            let at =
                if self.cursor as usize >= self.slots.len() { 0 } else { self.cursor as usize };
            self.cursor = u32::try_from(at).unwrap_or(0);
            if self.tags[at] != EMPTY_TAG && self.read_state(at, |state| is_expired(state, now)) {
                // Another key may have moved here, so the cursor stays.
                self.remove(at, context);
                self.cold.reclaimed += 1;
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Releases memory if the table has more than three times the slots that its keys need.
    fn shrink(&mut self, context: &TableContext) {
        let enough = self.len() + self.len() / 2 + 8;
        if self.slots.len() > 3 * enough {
            context.budget.release((self.slots.len() - enough) as u64 * SLOT_BYTES);
            self.rebuild(enough, &context.hasher);
        }
    }

    /// Passes every key and state to `see`.
    pub(crate) fn for_each(&self, mut see: impl FnMut(Fingerprint, &State)) {
        for (at, slot) in
            self.slots.iter().enumerate().filter(|(at, _)| self.tags[*at] != EMPTY_TAG)
        {
            self.read_state(at, |state| state.into_iter().for_each(|state| see(slot.key, state)));
        }
    }

    fn has_slots(&self, keys: usize) -> bool {
        (self.len() + keys) * 5 <= self.slots.len() * 4
    }

    /// Finds the slot of a key. If the key is absent, the error is the empty slot where it would be
    /// inserted, or `None` if the table has no slots.
    #[inline]
    fn probe(&self, key: Fingerprint, hash: TableHash) -> Result<usize, Option<usize>> {
        let (mut at, own) = (hash.home_slot(self.tags.len()), hash.tag());
        // A table without slots has no tags. A table with slots always has empty ones.
        while let (Some(tag), Some(slot)) = (self.tags.get(at), self.slots.get(at)) {
            if *tag == own && slot.key == key {
                return Ok(at);
            }
            if *tag == EMPTY_TAG {
                return Err(Some(at));
            }
            at = if at + 1 == self.tags.len() { 0 } else { at + 1 };
        }
        Err(None)
    }

    /// Empties a slot and closes the gap, so that no probe stops before it reaches its key.
    fn remove(&mut self, mut gap: usize, context: &TableContext) {
        if let SlotContent::Spilled(index) = self.slots[gap].unpack() {
            self.cold.spill.free(index, &context.budget);
        }
        let size = self.slots.len();
        let mut next = gap;
        loop {
            next = if next + 1 == size { 0 } else { next + 1 };
            if self.tags[next] == EMPTY_TAG {
                break;
            }
            let home = context.hasher.hash(self.slots[next].key).home_slot(size);
            // Distances from the key back to its home slot and to the gap, wrapping around.
            let (from_home, behind) = ((next + size - home) % size, (next + size - gap) % size);
            if from_home >= behind {
                (self.slots[gap], self.tags[gap]) = (self.slots[next], self.tags[next]);
                gap = next;
            }
        }
        self.tags[gap] = EMPTY_TAG;
        self.used -= 1;
    }

    fn rebuild(&mut self, size: usize, hasher: &TableHasher) {
        let tags = std::mem::replace(&mut self.tags, vec![EMPTY_TAG; size].into());
        let slots = std::mem::replace(&mut self.slots, vec![TableSlot::default(); size].into());
        for (slot, tag) in slots.iter().zip(tags).filter(|(_, tag)| *tag != EMPTY_TAG) {
            if let Err(Some(at)) = self.probe(slot.key, hasher.hash(slot.key)) {
                (self.slots[at], self.tags[at]) = (*slot, tag);
            }
        }
        (self.cursor, self.cold.no_room_before) = (0, Timestamp::EPOCH);
    }
}

/// Whether a state is equivalent to an absent one.
pub(crate) fn is_expired(state: Option<&State>, now: Timestamp) -> bool {
    state.is_none_or(|state| state.expires_at() <= now)
}
