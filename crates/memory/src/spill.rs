//! The spill area of a shard: states that are too large for a slot, and the memory reserved for
//! them.

use tidegate_core::algorithm::sliding_window_log::WindowLog;
use tidegate_core::algorithm::{State, Tally};

use crate::budget::MemoryBudget;

/// Spilled states by index.
#[derive(Debug, Default)]
pub(crate) struct SpillArea {
    entries: Vec<SpillEntry>,
    /// Indexes of unused `entries`.
    vacant: Vec<usize>,
}

#[derive(Debug, Default)]
struct SpillEntry {
    state: Option<State>,
    reserved: u64,
}

impl SpillArea {
    pub(crate) fn state(&self, index: usize) -> Option<&State> {
        self.entries.get(index)?.state.as_ref()
    }

    /// Takes a state out so that it can be changed. Its entry stays reserved.
    pub(crate) fn take(&mut self, index: usize) -> Option<State> {
        self.entries.get_mut(index)?.state.take()
    }

    /// Stores a state at `index`, or in a new entry if `index` is `None`, and reserves at least
    /// `reserve` bytes. Returns the index.
    pub(crate) fn put(
        &mut self,
        index: Option<usize>,
        state: State,
        reserve: u64,
        budget: &MemoryBudget,
    ) -> usize {
        let index = index.or_else(|| self.vacant.pop()).unwrap_or_else(|| {
            self.entries.push(SpillEntry::default());
            self.entries.len() - 1
        });
        let entry = &mut self.entries[index];
        let needed = reserve.max(state_bytes(&state)).max(entry.reserved);
        budget.reserve_unchecked(needed - entry.reserved);
        *entry = SpillEntry { state: Some(state), reserved: needed };
        index
    }

    /// Frees an entry and its reserved memory.
    pub(crate) fn free(&mut self, index: usize, budget: &MemoryBudget) {
        if let Some(entry) = self.entries.get_mut(index) {
            budget.release(std::mem::take(entry).reserved);
            self.vacant.push(index);
        }
        if self.vacant.len() == self.entries.len() {
            *self = Self::default();
        }
    }
}

/// Bytes to reserve for a log of `entries` entries.
pub(crate) fn log_bytes(entries: u64) -> u64 {
    WindowLog::worst_case_bytes(entries) + size_of::<SpillEntry>() as u64
}

fn state_bytes(state: &State) -> u64 {
    match &state.tally {
        Tally::Log(log) => log_bytes(log.entries().len() as u64),
        _ => size_of::<SpillEntry>() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_takes_its_entries_and_its_place() {
        for entries in [1, 4, 1_000] {
            let place = size_of::<SpillEntry>() as u64;
            assert_eq!(log_bytes(entries) - WindowLog::worst_case_bytes(entries), place);
        }
    }
}
