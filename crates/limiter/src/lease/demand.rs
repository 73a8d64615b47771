//! A node's demand for a counter, measured in slots of half a lease.

use tidegate_core::time::{Micros, Timestamp};

/// Fewer units than this vary too much for a margin.
pub(super) const FEW_UNITS: u64 = 16;

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

    /// Nineteen microseconds after the first slot began, its demand counts ten nineteenths.
    #[test]
    fn demand_is_mean_of_slots_or_growing() {
        let mut meter = meter();
        meter.record(2, 5, at(9));
        assert_eq!((meter.units_in_slot(at(9)), meter.recent_requests(at(9))), (5, 2));
        meter.record(1, 8, at(15));
        assert_eq!((meter.units_in_slot(at(19)), meter.recent_requests(at(19))), (8, 3));
        assert_eq!((meter.units_in_slot(at(20)), meter.recent_requests(at(29))), (8, 1));
        assert_eq!(meter.units_in_slot(at(29)), 8 * 10 / 19);
        meter.record(1, 1, at(29));
        assert_eq!(meter.units_in_slot(at(29)), 9 * 10 / 19);
        assert_eq!((meter.units_in_slot(at(50)), meter.recent_requests(at(50))), (0, 0));
    }

    #[test]
    fn margin_depends_on_demand_and_shortage() {
        for (units, is_short, wanted) in
            [(0, false, 1), (15, false, 16), (16, false, 24), (41, false, 61), (41, true, 42)]
        {
            let mut meter = meter();
            meter.record(1, units, at(0));
            assert_eq!(meter.wanted_units(is_short, at(0)), wanted, "{units} {is_short}");
        }
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
        assert_eq!((meter.units_in_slot(at(1)), meter.recent_requests(at(1))), (5, 1));
        (0..3).for_each(|_| meter.forget(4, at(1)));
        assert_eq!((meter.units_in_slot(at(1)), meter.recent_requests(at(1))), (0, 0));
    }
}
