//! The clock of a store that decides in tens of nanoseconds: the processor's own counter.
//!
//! Reading the system's monotonic clock took 33 ns here, a third of a decision; the calibrated
//! counter takes 11. Where the processor has no reliable one, `quanta` reads the system's clock.

use quanta::Clock as Counter;
use tidegate_core::time::{Clock, Micros, SystemClock, Timestamp};

/// Wall time at start plus the processor's monotonic counter since.
#[derive(Clone, Debug)]
pub struct FastClock {
    wall_at_start: Timestamp,
    start: u64,
    /// Microseconds a tick of the counter, times 2^64.
    scale: u64,
    counter: Counter,
}

impl FastClock {
    /// A clock that starts at the present wall time.
    #[must_use]
    pub fn new() -> Self {
        let counter = Counter::new();
        let scale = scale(&counter);
        Self { start: counter.raw(), wall_at_start: SystemClock::new().now(), scale, counter }
    }
}

/// How many ticks tell the rate of the counter: minutes, as exact as its calibration.
const SAMPLE_BITS: u32 = 40;

/// The rate that `quanta` found, such that one multiplication makes microseconds of ticks.
fn scale(counter: &Counter) -> u64 {
    let nanos = u128::from(counter.delta_as_nanos(0, 1 << SAMPLE_BITS));
    // A counter that ticks less than once a microsecond would be none.
    u64::try_from((nanos << (64 - SAMPLE_BITS)) / 1_000).unwrap_or(u64::MAX)
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FastClock {
    const MONOTONIC: bool = true;

    #[inline]
    fn now(&self) -> Timestamp {
        let ticks = self.counter.raw().saturating_sub(self.start);
        let micros = (u128::from(ticks) * u128::from(self.scale)) >> 64;
        self.wall_at_start.plus(Micros::new(micros as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_the_microseconds_that_the_counter_itself_would_tell() {
        let counter = Counter::new();
        let scale = u128::from(scale(&counter));
        // Up to about a year at 3 GHz.
        for ticks in (0..56).map(|bits| (1_u64 << bits) + 12_345) {
            let ours = (u128::from(ticks) * scale) >> 64;
            let theirs = u128::from(counter.delta_as_nanos(0, ticks) / 1_000);
            // The calibration is told to the nanosecond in 2^40 ticks.
            let slack = 1 + theirs / 100_000_000_000;
            assert!(ours.abs_diff(theirs) <= slack, "{ticks} ticks: {ours} and {theirs}");
        }
    }

    #[test]
    fn it_keeps_pace_with_the_systems_clock() {
        let (fast, system) = (FastClock::new(), SystemClock::new());
        let apart = |a: Timestamp, b: Timestamp| a.as_micros().abs_diff(b.as_micros());
        let before = fast.now();
        std::thread::yield_now();
        assert!(fast.now() >= before && apart(fast.now(), system.now()) < 1_000_000);
    }
}
