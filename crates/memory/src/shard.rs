//! One shard: an open-addressed table that grows by an eighth and sheds what is equal to fresh.
//!
//! Linear probing at a load of at most four fifths, over any number of slots (the home of a key is
//! its hash scaled to the table, so sizes need not be powers of two and memory follows the number
//! of keys closely). A byte a slot tells most keys apart, so a look-up touches one slot only. A shard
//! is small, so that growing it is short. It locks nothing itself.

use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::{Micros, Timestamp};

use crate::budget::Budget;
use crate::hash::{TableHash, TableHasher};
use crate::side::Side;
use crate::slot::{Held, Slot};

/// How many slots an insert looks over for something to shed.
const SWEEP_STEP: usize = 4;

/// How long a state that is equal to fresh is kept, unless its place is needed: a key that comes
/// again and again should not be removed and put back each time.
const LINGER: Micros = Micros::from_secs(5);

/// Bytes a slot takes, its mark included.
pub(crate) const SLOT_BYTES: u64 = size_of::<Slot>() as u64 + 1;

/// The mark of an empty slot; those of others are never zero.
const EMPTY: u8 = 0;

/// What all shards of a table share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) hasher: TableHasher,
    pub(crate) budget: Budget,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// For each slot [`EMPTY`], or some bits of its key's hash.
    marks: Box<[u8]>,
    slots: Box<[Slot]>,
    used: u32,
    /// Where the next sweep goes on.
    cursor: u32,
    /// The latest instant that any of its keys has seen.
    latest: Timestamp,
    /// Boxed, because a shard should fit a cache line.
    rare: Box<Rare>,
}

/// What is seldom needed.
#[derive(Debug, Default)]
struct Rare {
    /// Before this instant a full shard has nothing to shed.
    room_at: Timestamp,
    side: Side,
    /// Keys that were shed.
    reclaimed: u64,
}

impl Shard {
    pub(crate) const fn len(&self) -> usize {
        self.used as usize
    }

    /// How many keys were shed because they were equal to fresh.
    pub(crate) const fn reclaimed(&self) -> u64 {
        self.rare.reclaimed
    }

    #[inline]
    pub(crate) const fn latest(&self) -> Timestamp {
        self.latest
    }

    /// The instant that counts when `now` was read before the lock was had: a thread that waited
    /// must not take its keys back in time.
    #[inline]
    pub(crate) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    #[inline]
    pub(crate) fn find(&self, key: Fingerprint, hash: TableHash) -> Option<usize> {
        self.probe(key, hash).ok()
    }

    /// Shows the state at a place that `find` gave.
    #[inline]
    pub(crate) fn look<R>(&self, at: usize, see: impl FnOnce(Option<&State>) -> R) -> R {
        match self.slots[at].unpack() {
            Held::State(state) => see(Some(&state)),
            Held::Side(place) => see(self.rare.side.state(place)),
        }
    }

    /// The level at a place that `find` gave, if it is a bucket's.
    #[inline]
    pub(crate) fn level(&self, at: usize) -> Option<(ScaleId, Level)> {
        self.slots[at].level()
    }

    /// Changes a level that [`level`](Self::level) showed.
    #[inline]
    pub(crate) fn set_level(&mut self, at: usize, level: Level, common: &Common) {
        if !self.slots[at].set_level(level) {
            self.set_aside(at, level, common);
        }
    }

    /// A level that a slot has no bits for goes to the side with its state.
    #[cold]
    fn set_aside(&mut self, at: usize, level: Level, common: &Common) {
        self.edit(at, common, |state| {
            if let Some(state) = state {
                state.tally = Tally::Bucket(level);
            }
        });
    }

    /// Lets the state at a place that `find` gave be changed.
    #[inline]
    pub(crate) fn edit<R>(
        &mut self,
        at: usize,
        common: &Common,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let (mut state, place) = match self.slots[at].unpack() {
            Held::State(state) => (Some(state), None),
            Held::Side(place) => (self.rare.side.take(place), Some(place)),
        };
        let told = change(&mut state);
        match state {
            Some(state) => {
                self.slots[at] = self.pack(self.slots[at].key, state, place, 0, common);
            }
            None => self.remove(at, common),
        }
        told
    }

    /// Packs a state into a slot, or puts it to the side where it does not fit.
    #[inline]
    fn pack(
        &mut self,
        key: Fingerprint,
        state: State,
        place: Option<usize>,
        reserve: u64,
        common: &Common,
    ) -> Slot {
        let side = &mut self.rare.side;
        if let Some(slot) = Slot::pack(key, &state) {
            if let Some(place) = place {
                side.free(place, &common.budget);
            }
            return slot;
        }
        Slot::beside(key, side.put(place, state, reserve, &common.budget))
    }

    /// Puts a new state in. The caller has made room.
    pub(crate) fn insert(
        &mut self,
        key: Fingerprint,
        hash: TableHash,
        state: State,
        reserve: u64,
        common: &Common,
    ) {
        if let Err(Some(at)) = self.probe(key, hash) {
            self.slots[at] = self.pack(key, state, None, reserve, common);
            self.marks[at] = hash.mark();
            self.used += 1;
        }
    }

    /// Whether so many more keys fit, after shedding a little and growing if the budget allows.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        keys: usize,
        reserve: u64,
        now: Timestamp,
        common: &Common,
    ) -> bool {
        self.sweep(SWEEP_STEP, now.minus(LINGER), common);
        if reserve > 0 && !common.budget.has(reserve) {
            return false;
        }
        if self.has_slots(keys) {
            return true;
        }
        let grown = self.slots.len() + self.slots.len() / 8 + 8 * keys;
        if common.budget.take((grown - self.slots.len()) as u64 * SLOT_BYTES) {
            self.rebuild(grown, &common.hasher);
            return true;
        }
        self.search_room(now, common);
        self.has_slots(keys)
    }

    /// Looks everywhere for something to shed, once, and then not again before there can be anything:
    /// otherwise each newcomer of a flood would pay for a look at the whole shard.
    fn search_room(&mut self, now: Timestamp, common: &Common) {
        if now < self.rare.room_at {
            return;
        }
        self.sweep(self.slots.len(), now, common);
        let mut earliest = Timestamp::from_micros(u64::MAX);
        self.each(|_, state| earliest = earliest.min(state.fresh_at()));
        self.rare.room_at = earliest;
    }

    /// Looks over some slots and removes what has been equal to fresh for a while.
    pub(crate) fn tidy(&mut self, steps: usize, now: Timestamp, common: &Common) {
        self.sweep(steps, now.minus(LINGER), common);
        self.shrink(common);
    }

    /// Looks over so many slots and removes those that were equal to fresh at `now`.
    fn sweep(&mut self, steps: usize, now: Timestamp, common: &Common) {
        for _ in 0..steps.min(self.slots.len()) {
            let at =
                if self.cursor as usize >= self.slots.len() { 0 } else { self.cursor as usize };
            self.cursor = u32::try_from(at).unwrap_or(0);
            if self.marks[at] != EMPTY && self.look(at, |state| is_fresh(state, now)) {
                // Another key may have moved here: the cursor stays.
                self.remove(at, common);
                self.rare.reclaimed += 1;
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Gives memory back when less than a third of the table is in use.
    fn shrink(&mut self, common: &Common) {
        let enough = self.len() + self.len() / 2 + 8;
        if self.slots.len() > 3 * enough {
            common.budget.give((self.slots.len() - enough) as u64 * SLOT_BYTES);
            self.rebuild(enough, &common.hasher);
        }
    }

    /// Shows every key and state.
    pub(crate) fn each(&self, mut see: impl FnMut(Fingerprint, &State)) {
        for (at, slot) in self.slots.iter().enumerate().filter(|(at, _)| self.marks[*at] != EMPTY) {
            self.look(at, |state| state.into_iter().for_each(|state| see(slot.key, state)));
        }
    }

    fn has_slots(&self, keys: usize) -> bool {
        (self.len() + keys) * 5 <= self.slots.len() * 4
    }

    /// Where the key is; or else the empty slot where it would go, if there are any slots.
    #[inline]
    fn probe(&self, key: Fingerprint, hash: TableHash) -> Result<usize, Option<usize>> {
        let (mut at, own) = (hash.home(self.marks.len()), hash.mark());
        // A table without slots has no mark at all. One with slots has some that are empty.
        while let (Some(mark), Some(slot)) = (self.marks.get(at), self.slots.get(at)) {
            if *mark == own && slot.key == key {
                return Ok(at);
            }
            if *mark == EMPTY {
                return Err(Some(at));
            }
            at = if at + 1 == self.marks.len() { 0 } else { at + 1 };
        }
        Err(None)
    }

    /// Empties a slot and closes the gap, so that no probe stops short of its key.
    fn remove(&mut self, mut gap: usize, common: &Common) {
        if let Held::Side(place) = self.slots[gap].unpack() {
            self.rare.side.free(place, &common.budget);
        }
        let size = self.slots.len();
        let mut next = gap;
        loop {
            next = if next + 1 == size { 0 } else { next + 1 };
            if self.marks[next] == EMPTY {
                break;
            }
            let home = common.hasher.hash(self.slots[next].key).home(size);
            // How far the key is from home, and how far the gap is behind it, going round.
            let (from_home, behind) = ((next + size - home) % size, (next + size - gap) % size);
            if from_home >= behind {
                (self.slots[gap], self.marks[gap]) = (self.slots[next], self.marks[next]);
                gap = next;
            }
        }
        self.marks[gap] = EMPTY;
        self.used -= 1;
    }

    fn rebuild(&mut self, size: usize, hasher: &TableHasher) {
        let marks = std::mem::replace(&mut self.marks, vec![EMPTY; size].into());
        let slots = std::mem::replace(&mut self.slots, vec![Slot::default(); size].into());
        for (slot, mark) in slots.iter().zip(marks).filter(|(_, mark)| *mark != EMPTY) {
            if let Err(Some(at)) = self.probe(slot.key, hasher.hash(slot.key)) {
                (self.slots[at], self.marks[at]) = (*slot, mark);
            }
        }
        (self.cursor, self.rare.room_at) = (0, Timestamp::EPOCH);
    }
}

/// Whether a state is equal to an absent one.
pub(crate) fn is_fresh(state: Option<&State>, now: Timestamp) -> bool {
    state.is_none_or(|state| state.fresh_at() <= now)
}
