//! How much a node needs of a counter, measured in slots of half a lease.

use tidegate_core::time::{Micros, Timestamp};

/// Fewer units than this vary too much for a margin.
const FEW_UNITS: u64 = 16;

/// The demand of the current slot and of the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemandMeter {
    slot: Micros,
    slot_start: Timestamp,
    current: Demand,
    previous: Demand,
}

/// What was asked for in one slot, including what was refused.
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

    /// What to ask for: what one slot needs, and half as much again, so that requests rarely wait
    /// and calls are few. When it needs few units, the need varies, and a larger margin would waste
    /// more than it saves. While the store `is_short`, the node asks once in a slot anyway.
    pub(super) fn wanted_units(&mut self, is_short: bool, now: Timestamp) -> u64 {
        let units = self.units_in_slot(now);
        let more = if is_short || units < FEW_UNITS { 1 } else { units / 2 };
        units.saturating_add(more)
    }

    /// The units of a slot: the mean since the previous one began, or those of the current one if
    /// demand grows.
    fn units_in_slot(&mut self, now: Timestamp) -> u64 {
        self.advance(now);
        let slot = self.slot.get().max(1);
        let measured = slot.saturating_add(now.since(self.slot_start).get());
        let units = self.current.units.saturating_add(self.previous.units);
        let mean = u128::from(units) * u128::from(slot) / u128::from(measured);
        u64::try_from(mean).unwrap_or(u64::MAX).max(self.current.units)
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
