//! Instants, durations and clocks, in whole microseconds.
//!
//! Apart from the server's wiring, only this module reads a real clock; every other function
//! receives `now` as an argument. There is no support for calendars or time zones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant: microseconds since the Unix epoch, on the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// The instant this many microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved earlier by `span`, saturating at the epoch.
    #[must_use]
    pub const fn minus(self, span: Micros) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// This instant moved later by `span`, saturating at the largest timestamp.
    #[must_use]
    pub const fn plus(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Micros {
    /// An empty span.
    pub const ZERO: Self = Self(0);

    /// A span of `micros` microseconds.
    #[must_use]
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// A span of `millis` milliseconds, saturating at the largest span.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A span of `secs` seconds, saturating at the largest span.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The number of microseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded up, so that a client that waits this long has waited enough.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs_floor(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds, rounded up, so that a client that waits this long has waited enough.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The span for people to read, in at most two units: `250 ms`, `1.9 s`, `15 min`, `1 h 10
    /// min`. Rounded up, so that a client that waits this long has waited enough.
    #[must_use]
    pub fn to_human_string(self) -> String {
        let (millis, seconds) = (self.as_millis_ceil(), self.as_secs_ceil());
        let tenths = millis.div_ceil(100);
        match seconds {
            0 => "0 s".to_owned(),
            1 if millis < 1_000 => format!("{millis} ms"),
            1..10 if tenths % 10 > 0 => format!("{}.{} s", tenths / 10, tenths % 10),
            1..10 => format!("{} s", tenths / 10),
            10..60 => format!("{seconds} s"),
            60..3_600 => format_two_units(seconds, 60, ["min", "s"]),
            3_600..86_400 => format_two_units(seconds.div_ceil(60), 60, ["h", "min"]),
            86_400.. => format_two_units(seconds.div_ceil(3_600), 24, ["d", "h"]),
        }
    }
}

/// Formats `number` of the smaller unit, where `size` of them make one of the larger unit.
fn format_two_units(number: u64, size: u64, [large, small]: [&str; 2]) -> String {
    match (number / size, number % size) {
        (whole, 0) => format!("{whole} {large}"),
        (whole, rest) => format!("{whole} {large} {rest} {small}"),
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Duration::from_micros(span.0)
    }
}

/// Formats the span as a person would type it, in the largest unit that divides it (`90s`, `36h`).
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "m"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let (size, name) =
            UNITS.into_iter().find(|(size, _)| self.0.is_multiple_of(*size)).unwrap_or((1, "us"));
        write!(f, "{}{name}", self.0 / size)
    }
}

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Whether the clock never goes back. A store may then read it before it takes its locks.
    const MONOTONIC: bool;

    /// The current time.
    fn now(&self) -> Timestamp;
}

/// Wall time at start plus monotonic time since then, so steps of the wall clock do not affect it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    wall_at_start: Timestamp,
    start: Instant,
}

impl SystemClock {
    /// A clock that starts at the current wall time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all other code receives")]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            wall_at_start: Timestamp(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX)),
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    const MONOTONIC: bool = true;

    fn now(&self) -> Timestamp {
        let since = self.start.elapsed();
        // Add seconds and sub-seconds separately: `as_micros` would use 128-bit arithmetic.
        let micros = since.as_secs().saturating_mul(1_000_000) + u64::from(since.subsec_micros());
        self.wall_at_start.plus(Micros(micros))
    }
}

/// A clock that moves only when set, for tests and simulations. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock to `now`, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, span: Micros) {
        self.0.fetch_add(span.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    const MONOTONIC: bool = false;

    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_and_print_compactly() {
        assert_eq!(Micros::new(900_001).as_secs_ceil(), 1);
        assert_eq!(Micros::new(1).as_millis_ceil(), 1);
        assert_eq!(Micros::ZERO.as_secs_ceil(), 0);
        assert_eq!(Micros::from_secs(129_600).to_string(), "36h");
        assert_eq!(Micros::from_secs(90).to_string(), "90s");
        assert_eq!(Micros::from_millis(1_500).to_string(), "1500ms");
    }

    #[test]
    fn human_durations_never_round_down() {
        for (micros, words) in [
            (0, "0 s"),
            (1, "1 ms"),
            (999_001, "1 s"),
            (1_911_000, "2 s"),
            (1_811_000, "1.9 s"),
            (9_950_001, "10 s"),
            (59_000_001, "1 min"),
            (61_000_000, "1 min 1 s"),
            (899_942_164, "15 min"),
            (4_178_895_000, "1 h 10 min"),
            (86_340_000_001, "24 h"),
            (90_000_000_001, "1 d 2 h"),
        ] {
            assert_eq!(Micros::new(micros).to_human_string(), words);
        }
    }

    #[test]
    fn whole_seconds_and_std_durations_keep_the_span() {
        let span = Micros::new(12_999_999);
        assert_eq!((span.as_secs_floor(), span.as_secs_ceil()), (12, 13));
        assert_eq!(Duration::from(span), Duration::from_micros(12_999_999));
    }

    #[test]
    fn system_clock_advances_from_wall_time() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(first > Timestamp::from_micros(1_700_000_000_000_000));
        assert!(clock.now() >= first);
        assert!((0..100_000).any(|_| clock.now() > first), "the clock stands still");
    }

    #[test]
    fn manual_clock_moves_only_when_set() {
        let clock = ManualClock::new(Timestamp::from_micros(5));
        let clone = clock.clone();
        assert_eq!((clock.now(), clone.now()), (Timestamp::from_micros(5), clock.now()));
        clock.advance(Micros::new(3));
        assert_eq!(clone.now(), Timestamp::from_micros(8));
        clone.set(Timestamp::from_micros(2));
        assert_eq!(clock.now(), Timestamp::from_micros(2));
    }
}
