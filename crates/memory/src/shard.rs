//! One shard: an open-addressed table that grows by an eighth and sheds what is equal to fresh.
//!
//! Linear probing at a load of at most four fifths, over any number of slots (the home of a key is
//! its hash scaled to the table, so sizes need not be powers of two and memory follows the number
//! of keys closely). A shard is small, so that growing it is short. It locks nothing itself.

use tidegate_core::algorithm::sliding_window_log::Log;
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::{Micros, Timestamp};

use crate::budget::Budget;
use crate::hash::{TableHash, TableHasher};
use crate::slot::{Held, Slot};

/// How many slots an insert looks over for something to shed.
const SWEEP_STEP: usize = 4;

/// How long a state that is equal to fresh is kept, unless its place is needed: a key that comes
/// again and again should not be removed and put back each time.
const LINGER: Micros = Micros::from_secs(5);

/// Bytes a slot takes.
pub(crate) const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

/// What all shards of a table share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) hasher: TableHasher,
    pub(crate) budget: Budget,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    slots: Box<[Slot]>,
    used: usize,
    /// Where the next sweep goes on.
    cursor: usize,
    /// The latest instant that any of its keys has seen.
    latest: Timestamp,
    /// Before this instant a full shard has nothing to shed.
    room_at: Timestamp,
    /// Boxed, because most shards hold none.
    logs: Box<Logs>,
}

/// The logs of a shard, which are too large for slots.
#[derive(Debug, Default)]
struct Logs {
    cells: Vec<LogCell>,
    /// Places of `cells` that are not in use.
    vacant: Vec<usize>,
}

/// A log and the bytes that are set aside for it.
#[derive(Debug, Default)]
struct LogCell {
    state: Option<State>,
    reserved: u64,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.used
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
        let at = self.probe(key, hash)?;
        (!self.slots[at].is_empty()).then_some(at)
    }

    /// Shows the state at a place that `find` gave.
    #[inline]
    pub(crate) fn look<R>(&self, at: usize, see: impl FnOnce(Option<&State>) -> R) -> R {
        match self.slots[at].unpack() {
            Some(Held::State(state)) => see(Some(&state)),
            Some(Held::Log(place)) => see(self.logs.cells[place].state.as_ref()),
            None => see(None),
        }
    }

    /// The level at a place that `find` gave, if it is a bucket's.
    #[inline]
    pub(crate) fn level(&self, at: usize) -> Option<(ScaleId, Level)> {
        self.slots[at].level()
    }

    /// Changes a level that [`level`](Self::level) showed.
    #[inline]
    pub(crate) fn set_level(&mut self, at: usize, level: Level) {
        self.slots[at].set_level(level);
    }

    /// Lets the state at a place that `find` gave be changed.
    #[inline]
    pub(crate) fn edit<R>(
        &mut self,
        at: usize,
        common: &Common,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let key = self.slots[at].key;
        let (mut state, place) = match self.slots[at].unpack() {
            Some(Held::State(state)) => (Some(state), None),
            Some(Held::Log(place)) => (self.logs.cells[place].state.take(), Some(place)),
            None => (None, None),
        };
        let told = change(&mut state);
        match state {
            Some(state) => {
                // A key keeps its algorithm; should it change all the same, so does where it is kept.
                if let Some(place) = place.filter(|_| !matches!(state.tally, Tally::Log(_))) {
                    common.budget.give(self.logs.free(place));
                }
                self.slots[at] = self.pack(key, state, place, 0, common);
            }
            None => self.remove(at, common),
        }
        told
    }

    /// Packs a state, its log, if it is one, to a place of its own.
    #[inline]
    fn pack(
        &mut self,
        key: Fingerprint,
        state: State,
        place: Option<usize>,
        reserve: u64,
        common: &Common,
    ) -> Slot {
        let Tally::Log(log) = &state.tally else { return Slot::pack(key, &state, 0) };
        let needed = reserve.max(log_reserve(log.entries().len() as u64));
        let place = place.unwrap_or_else(|| self.logs.place());
        let slot = Slot::pack(key, &state, place);
        let cell = &mut self.logs.cells[place];
        common.budget.take_anyway(needed.saturating_sub(cell.reserved));
        *cell = LogCell { reserved: needed.max(cell.reserved), state: Some(state) };
        slot
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
        if let Some(at) = self.probe(key, hash) {
            self.slots[at] = self.pack(key, state, None, reserve, common);
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
        if now < self.room_at {
            return;
        }
        self.sweep(self.slots.len(), now, common);
        let mut earliest = Timestamp::from_micros(u64::MAX);
        self.each(|_, state| earliest = earliest.min(state.fresh_at()));
        self.room_at = earliest;
    }

    /// Looks over some slots and removes what has been equal to fresh for a while.
    pub(crate) fn tidy(&mut self, steps: usize, now: Timestamp, common: &Common) {
        self.sweep(steps, now.minus(LINGER), common);
        self.shrink(common);
    }

    /// Looks over so many slots and removes those that were equal to fresh at `now`.
    fn sweep(&mut self, steps: usize, now: Timestamp, common: &Common) {
        for _ in 0..steps.min(self.slots.len()) {
            if self.cursor >= self.slots.len() {
                self.cursor = 0;
            }
            let at = self.cursor;
            if !self.slots[at].is_empty() && self.look(at, |state| is_fresh(state, now)) {
                // Another key may have moved here: the cursor stays.
                self.remove(at, common);
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Gives memory back when less than a third of the table is in use.
    fn shrink(&mut self, common: &Common) {
        let enough = self.used + self.used / 2 + 8;
        if self.slots.len() > 3 * enough {
            common.budget.give((self.slots.len() - enough) as u64 * SLOT_BYTES);
            self.rebuild(enough, &common.hasher);
        }
        if self.logs.cells.len() == self.logs.vacant.len() {
            *self.logs = Logs::default();
        }
    }

    /// Shows every key and state.
    pub(crate) fn each(&self, mut see: impl FnMut(Fingerprint, &State)) {
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
            self.look(at, |state| state.into_iter().for_each(|state| see(slot.key, state)));
        }
    }

    fn has_slots(&self, keys: usize) -> bool {
        (self.used + keys) * 5 <= self.slots.len() * 4
    }

    /// Where the key is, or the empty slot where it would go.
    #[inline]
    fn probe(&self, key: Fingerprint, hash: TableHash) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = hash.home(self.slots.len());
        loop {
            let slot = &self.slots[at];
            if slot.is_empty() || slot.key == key {
                return Some(at);
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
    }

    /// Empties a slot and closes the gap, so that no probe stops short of its key.
    fn remove(&mut self, mut gap: usize, common: &Common) {
        if let Some(Held::Log(place)) = self.slots[gap].unpack() {
            common.budget.give(self.logs.free(place));
        }
        let size = self.slots.len();
        let mut next = gap;
        loop {
            next = if next + 1 == size { 0 } else { next + 1 };
            if self.slots[next].is_empty() {
                break;
            }
            let home = common.hasher.hash(self.slots[next].key).home(size);
            // How far the key is from home, and how far the gap is behind it, going round.
            let (from_home, behind) = ((next + size - home) % size, (next + size - gap) % size);
            if from_home >= behind {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
        }
        self.slots[gap] = Slot::default();
        self.used -= 1;
    }

    fn rebuild(&mut self, size: usize, hasher: &TableHasher) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size].into());
        for slot in old.iter().filter(|slot| !slot.is_empty()) {
            if let Some(at) = self.probe(slot.key, hasher.hash(slot.key)) {
                self.slots[at] = *slot;
            }
        }
        (self.cursor, self.room_at) = (0, Timestamp::EPOCH);
    }
}

impl Logs {
    /// A free place.
    fn place(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.cells.push(LogCell::default());
            self.cells.len() - 1
        })
    }

    /// Empties a place; returns the bytes that were set aside for it.
    fn free(&mut self, place: usize) -> u64 {
        self.vacant.push(place);
        std::mem::take(&mut self.cells[place]).reserved
    }
}

/// Whether a state is equal to an absent one.
pub(crate) fn is_fresh(state: Option<&State>, now: Timestamp) -> bool {
    state.is_none_or(|state| state.fresh_at() <= now)
}

/// Bytes to set aside for a log of so many requests.
pub(crate) fn log_reserve(requests: u64) -> u64 {
    Log::worst_case_bytes(requests) + size_of::<LogCell>() as u64
}
