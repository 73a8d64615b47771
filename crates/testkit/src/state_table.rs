//! The reference store: a map of states. Every store must behave as [`batch::apply`] does on this
//! table.

use std::collections::HashMap;

use tidegate_core::algorithm::State;
use tidegate_core::batch::{self, Cells, StateKind};
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Timestamp;

/// States by key and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateTable {
    states: HashMap<(Fingerprint, u8), State>,
}

impl StateTable {
    /// Applies `op` to `charges` at `now`, and returns one reading per charge.
    pub fn apply(&mut self, op: Op, charges: &[Charge<'_>], now: Timestamp) -> Vec<Reading> {
        let mut readings = vec![Reading::default(); charges.len()];
        batch::apply(op, charges, now, &mut TableCells { table: self, charges }, &mut readings);
        readings
    }

    /// Applies `op` to a single charge and returns its reading.
    pub fn apply_one(&mut self, op: Op, charge: &Charge<'_>, now: Timestamp) -> Reading {
        let mut reading = [Reading::default()];
        let charges = std::slice::from_ref(charge);
        batch::apply(op, charges, now, &mut TableCells { table: self, charges }, &mut reading);
        reading[0]
    }

    /// The state of one kind of a key.
    #[must_use]
    pub fn state(&self, key: Fingerprint, part: StateKind) -> Option<&State> {
        self.states.get(&(key, part_index(part)))
    }
}

struct TableCells<'a> {
    table: &'a mut StateTable,
    charges: &'a [Charge<'a>],
}

impl TableCells<'_> {
    fn state_key(&self, charge: usize, part: StateKind) -> (Fingerprint, u8) {
        (self.charges[charge].key.fingerprint, part_index(part))
    }
}

impl Cells for TableCells<'_> {
    fn read<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        see: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        see(self.table.states.get(&self.state_key(charge, part)))
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let name = self.state_key(charge, part);
        let mut state = self.table.states.remove(&name);
        let result = change(&mut state);
        if let Some(state) = state {
            self.table.states.insert(name, state);
        }
        result
    }
}

const fn part_index(part: StateKind) -> u8 {
    match part {
        StateKind::Main => 0,
        StateKind::Grace => 1,
        StateKind::Ban => 2,
    }
}
