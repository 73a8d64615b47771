//! The simplest table of states there is: a map. What [`batch::apply`] does over it is what every
//! store must do.

use std::collections::HashMap;

use tidegate_core::algorithm::State;
use tidegate_core::batch::{self, Cells, Part};
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Timestamp;

/// States by key and part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    states: HashMap<(Fingerprint, u8), State>,
}

impl Table {
    /// Does `op` to `charges` at `now`, one reading for each.
    pub fn apply(&mut self, op: Op, charges: &[Charge<'_>], now: Timestamp) -> Vec<Reading> {
        let mut readings = vec![Reading::default(); charges.len()];
        batch::apply(op, charges, now, &mut View { table: self, charges }, &mut readings);
        readings
    }

    /// The one reading of a single charge.
    pub fn apply_one(&mut self, op: Op, charge: &Charge<'_>, now: Timestamp) -> Reading {
        let mut reading = [Reading::default()];
        let charges = std::slice::from_ref(charge);
        batch::apply(op, charges, now, &mut View { table: self, charges }, &mut reading);
        reading[0]
    }

    /// The state of one part of a key.
    #[must_use]
    pub fn state(&self, key: Fingerprint, part: Part) -> Option<&State> {
        self.states.get(&(key, number(part)))
    }
}

struct View<'a> {
    table: &'a mut Table,
    charges: &'a [Charge<'a>],
}

impl View<'_> {
    fn name(&self, charge: usize, part: Part) -> (Fingerprint, u8) {
        (self.charges[charge].key.fingerprint, number(part))
    }
}

impl Cells for View<'_> {
    fn look<R>(&mut self, charge: usize, part: Part, see: impl FnOnce(Option<&State>) -> R) -> R {
        see(self.table.states.get(&self.name(charge, part)))
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        let name = self.name(charge, part);
        let mut state = self.table.states.remove(&name);
        let told = change(&mut state);
        if let Some(state) = state {
            self.table.states.insert(name, state);
        }
        told
    }
}

const fn number(part: Part) -> u8 {
    match part {
        Part::Main => 0,
        Part::Grace => 1,
        Part::Ban => 2,
    }
}
