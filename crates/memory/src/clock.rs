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
    counter: Counter,
}

impl FastClock {
    /// A clock that starts at the present wall time.
    #[must_use]
    pub fn new() -> Self {
        let counter = Counter::new();
        Self { start: counter.raw(), wall_at_start: SystemClock::new().now(), counter }
    }
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
        let nanos = self.counter.delta_as_nanos(self.start, self.counter.raw());
        self.wall_at_start.plus(Micros::new(nanos / 1_000))
    }
}
