//! True time, and the clocks of machines, which drift and step.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::time::{Clock, Timestamp};

/// The fastest and slowest clock: this many microseconds a second off.
pub(crate) const MAX_DRIFT_PPM: i64 = 200;

/// Microseconds of true time since the start of a simulation.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn advance_to(&self, at: u64) {
        debug_assert!(at >= self.now());
        self.0.store(at, Relaxed);
    }
}

/// The clock of one machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineClock {
    time: TrueTime,
    ppm: i64,
    segments: Arc<Mutex<Vec<Segment>>>,
}

/// From `true_from` on the clock shows `local_from` plus the time passed.
#[derive(Clone, Copy, Debug)]
struct Segment {
    true_from: u64,
    local_from: u64,
}

impl MachineClock {
    pub(crate) fn new(time: TrueTime, local_from: u64, ppm: i64) -> Self {
        let true_from = time.now();
        let segments = Arc::new(Mutex::new(vec![Segment { true_from, local_from }]));
        Self { time, ppm, segments }
    }

    /// Moves the clock.
    pub(crate) fn step(&self, micros: i64) {
        let local_from = self.now().as_micros().saturating_add_signed(micros);
        let segment = Segment { true_from: self.time.now(), local_from };
        self.lock().push(segment);
    }

    /// What the clock showed at an instant of true time, and how often it was stepped before.
    pub(crate) fn at(&self, true_at: u64) -> (Timestamp, usize) {
        let segments = self.lock();
        let later = segments.iter().take_while(|segment| segment.true_from <= true_at).count();
        let index = later.saturating_sub(1);
        let Segment { true_from, local_from } = segments[index];
        (Timestamp::from_micros(local_from + self.scaled(true_at.saturating_sub(true_from))), index)
    }

    fn scaled(&self, passed: u64) -> u64 {
        let rate = 1_000_000_u64.saturating_add_signed(self.ppm);
        let passed = u128::from(passed) * u128::from(rate) / 1_000_000;
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for MachineClock {
    const MONOTONIC: bool = false;

    fn now(&self) -> Timestamp {
        self.at(self.time.now()).0
    }
}
