//! A node's demand for a counter, measured in slots of half a lease.

use tidegate_core::time::{Micros, Timestamp};

/// The demand of the current slot and of the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemandMeter {
    slot: Micros,
    slot_start: Timestamp,
    current: Demand,
    previous: Demand,
}

/// The demand of one slot, including refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    requests: u32,
    units: u64,
}

impl DemandMeter {
    pub(super) const fn new(slot: Micros, now: Timestamp) -> Self {
        let none = Demand { requests: 0, units: 0 };
        Self { slot, slot_start: now, current: none, previous: none }
    }

    /// Records requests with a total cost of `units`.
    pub(super) fn record(&mut self, requests: u32, units: u64, now: Timestamp) {
        self.advance(now);
        self.current.requests = self.current.requests.saturating_add(requests);
        self.current.units = self.current.units.saturating_add(units);
    }

    /// Takes back a request that another rule refused: it needed nothing.
    pub(super) fn forget(&mut self, units: u64, now: Timestamp) {
        self.advance(now);
        self.current.requests = self.current.requests.saturating_sub(1);
        self.current.units = self.current.units.saturating_sub(units);
    }

    /// One and a half times the demand of one slot.
    pub(super) fn wanted_units(&mut self, now: Timestamp) -> u64 {
        self.advance(now);
        let units = self.current.units.max(self.previous.units);
        units.saturating_add(units / 2)
    }

    /// The requests of the last one to two slots.
    pub(super) fn recent_requests(&mut self, now: Timestamp) -> u32 {
        self.advance(now);
        self.current.requests.saturating_add(self.previous.requests)
    }

    fn advance(&mut self, now: Timestamp) {
        let slots = now.since(self.slot_start).get() / self.slot.get().max(1);
        if slots == 0 {
            return;
        }
        self.previous = if slots == 1 { self.current } else { Demand::default() };
        self.current = Demand::default();
        self.slot_start = self.slot_start.plus(Micros::new(slots.saturating_mul(self.slot.get())));
    }
}
