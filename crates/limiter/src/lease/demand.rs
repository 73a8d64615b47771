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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_000 + micros)
    }

    /// Slots of ten microseconds.
    fn meter() -> DemandMeter {
        DemandMeter::new(Micros::new(10), at(0))
    }

    #[test]
    fn larger_demand_of_two_slots_counts() {
        let mut meter = meter();
        meter.record(2, 5, at(9));
        assert_eq!((meter.wanted_units(at(9)), meter.recent_requests(at(9))), (7, 2));
        meter.record(1, 8, at(15));
        assert_eq!((meter.wanted_units(at(19)), meter.recent_requests(at(19))), (12, 3));
        assert_eq!((meter.wanted_units(at(20)), meter.recent_requests(at(29))), (12, 1));
        assert_eq!((meter.wanted_units(at(30)), meter.recent_requests(at(30))), (0, 0));
    }

    #[test]
    fn demand_ends_after_idle_slots() {
        for idle_slots in 2..5 {
            let mut meter = meter();
            meter.record(3, 3, at(5));
            assert_eq!(meter.recent_requests(at(idle_slots * 10)), 0, "{idle_slots}");
            // Slots keep their ends.
            meter.record(1, 1, at(idle_slots * 10 + 9));
            assert_eq!(meter.recent_requests(at(idle_slots * 10 + 19)), 1, "{idle_slots}");
            assert_eq!(meter.recent_requests(at(idle_slots * 10 + 20)), 0, "{idle_slots}");
        }
    }

    #[test]
    fn forgotten_request_needed_nothing() {
        let mut meter = meter();
        meter.record(2, 9, at(0));
        meter.forget(4, at(1));
        assert_eq!((meter.wanted_units(at(1)), meter.recent_requests(at(1))), (7, 1));
        (0..3).for_each(|_| meter.forget(4, at(1)));
        assert_eq!((meter.wanted_units(at(1)), meter.recent_requests(at(1))), (0, 0));
    }
}
