//! The side of a shard: states that are too large for a slot, and the bytes set aside for them.

use tidegate_core::algorithm::sliding_window_log::Log;
use tidegate_core::algorithm::{State, Tally};

use crate::budget::Budget;

/// States by place.
#[derive(Debug, Default)]
pub(crate) struct Side {
    cells: Vec<Cell>,
    /// Places of `cells` that are not in use.
    vacant: Vec<usize>,
}

#[derive(Debug, Default)]
struct Cell {
    state: Option<State>,
    reserved: u64,
}

impl Side {
    pub(crate) fn state(&self, place: usize) -> Option<&State> {
        self.cells.get(place)?.state.as_ref()
    }

    /// Takes a state out to be changed; its place stays.
    pub(crate) fn take(&mut self, place: usize) -> Option<State> {
        self.cells.get_mut(place)?.state.take()
    }

    /// Puts a state at a place, a new one if none is given, and sets aside at least `reserve` bytes.
    pub(crate) fn put(
        &mut self,
        place: Option<usize>,
        state: State,
        reserve: u64,
        budget: &Budget,
    ) -> usize {
        let place = place.or_else(|| self.vacant.pop()).unwrap_or_else(|| {
            self.cells.push(Cell::default());
            self.cells.len() - 1
        });
        let cell = &mut self.cells[place];
        let needed = reserve.max(bytes(&state)).max(cell.reserved);
        budget.take_anyway(needed - cell.reserved);
        *cell = Cell { state: Some(state), reserved: needed };
        place
    }

    /// Empties a place.
    pub(crate) fn free(&mut self, place: usize, budget: &Budget) {
        if let Some(cell) = self.cells.get_mut(place) {
            budget.give(std::mem::take(cell).reserved);
            self.vacant.push(place);
        }
        if self.vacant.len() == self.cells.len() {
            *self = Self::default();
        }
    }
}

/// Bytes to set aside for a log of so many entries.
pub(crate) fn log_bytes(entries: u64) -> u64 {
    Log::worst_case_bytes(entries) + size_of::<Cell>() as u64
}

fn bytes(state: &State) -> u64 {
    match &state.tally {
        Tally::Log(log) => log_bytes(log.entries().len() as u64),
        _ => size_of::<Cell>() as u64,
    }
}
