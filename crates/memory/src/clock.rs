//! A fast clock based on the processor's timestamp counter.
//!
//! Reading the system's monotonic clock took 33 ns, a third of a decision; reading the calibrated
//! counter takes 11 ns. If the processor has no reliable counter, `quanta` reads the system clock.

use quanta::Clock as Counter;
use tidegate_core::time::{Clock, Micros, SystemClock, Timestamp};

/// Wall time at start plus the time since then on the processor's monotonic counter.
#[derive(Clone, Debug)]
pub struct FastClock {
    wall_at_start: Timestamp,
    start: u64,
    /// Microseconds per counter tick, times 2^64.
    scale: u64,
    counter: Counter,
}

impl FastClock {
    /// A clock that starts at the current wall time.
    #[must_use]
    pub fn new() -> Self {
        let counter = Counter::new();
        let scale = micros_per_tick(&counter);
        Self { start: counter.raw(), wall_at_start: SystemClock::new().now(), scale, counter }
    }
}

/// Log2 of the number of ticks used to compute the counter's rate. 2^40 ticks are minutes, so the
/// rate is as exact as the calibration.
const SAMPLE_BITS: u32 = 40;

/// The rate that `quanta` calibrated, as a factor that converts ticks to microseconds with one
/// multiplication.
fn micros_per_tick(counter: &Counter) -> u64 {
    let nanos = u128::from(counter.delta_as_nanos(0, 1 << SAMPLE_BITS));
    // The result fits, because every counter ticks more than once per microsecond.
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
    fn tick_conversion_matches_counter() {
        let counter = Counter::new();
        let scale = u128::from(micros_per_tick(&counter));
        // Up to about a year at 3 GHz.
        for ticks in (0..56).map(|bits| (1_u64 << bits) + 12_345) {
            let ours = (u128::from(ticks) * scale) >> 64;
            let theirs = u128::from(counter.delta_as_nanos(0, ticks) / 1_000);
            // The calibration is exact to one nanosecond in 2^40 ticks.
            let slack = 1 + theirs / 100_000_000_000;
            assert!(
                ours.abs_diff(theirs) <= slack,
                "{ticks} ticks: {ours} us, expected {theirs} us"
            );
        }
    }

    #[test]
    fn fast_clock_runs_at_system_speed() {
        let (fast, system) = (FastClock::new(), SystemClock::new());
        let read = || [system.now(), fast.now(), system.now()];
        let first = read();
        let mut last = read();
        while last[0].since(first[2]) < Micros::from_millis(20) {
            last = read();
        }
        let elapsed = last[1].since(first[1]).get();
        // The readings of the system clock enclose those of the fast one. The calibration is far
        // more exact than a tenth.
        let (least, most) = (last[0].since(first[2]).get(), last[2].since(first[0]).get());
        assert!((least / 10 * 9..=most / 10 * 11 + 10).contains(&elapsed), "{elapsed} us");
    }

    #[test]
    fn fast_clock_tracks_system_clock() {
        let (fast, system) = (FastClock::new(), SystemClock::new());
        let apart = |a: Timestamp, b: Timestamp| a.as_micros().abs_diff(b.as_micros());
        let before = fast.now();
        std::thread::yield_now();
        assert!(fast.now() >= before && apart(fast.now(), system.now()) < 1_000_000);
    }
}
