//! Circuit breaker for one server.
//!
//! While it is closed, all calls are allowed. It opens after several failures in a row, or when
//! half of the calls of the last second failed. While it is open, only probes are sent. After a
//! probe with the real script succeeds, it allows a growing share of calls until it is closed
//! again. It reads no clock: callers pass `now`.

use std::time::Duration;

use tokio::time::Instant;

use crate::stats::BreakerState;

/// Failures in a row that open the breaker.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;

/// Window of the failure ratio.
const FAILURE_WINDOW: Duration = Duration::from_secs(1);
/// Minimum number of calls in the window for the failure ratio to count.
const MIN_CALLS: u32 = 20;

/// Number of steps in which the allowed share grows.
const RAMP_STEPS: u32 = 4;
/// Duration of each step.
const RAMP_STEP: Duration = Duration::from_millis(50);

/// Circuit breaker for one server.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    consecutive_failures: u32,
    window_start: Instant,
    calls: u32,
    failures: u32,
    /// Calls since the breaker began to close; selects the allowed share.
    ramp_calls: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never connected; the first successful probe closes it at once, without a ramp.
    New,
    Closed,
    Open,
    /// Ramping up since this time.
    Closing(Instant),
}

/// State change caused by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    /// No more calls are allowed.
    Opened,
    /// All calls are allowed.
    Closed,
}

impl Breaker {
    /// Creates a breaker for a server that has not been reached yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::New,
            consecutive_failures: 0,
            window_start: now,
            calls: 0,
            failures: 0,
            ramp_calls: 0,
        }
    }

    /// Whether the next call is allowed.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::New | State::Open => false,
            State::Closing(since) => {
                let steps = (now - since).as_millis() / RAMP_STEP.as_millis() + 1;
                self.ramp_calls = self.ramp_calls.wrapping_add(1);
                u128::from(self.ramp_calls % RAMP_STEPS) < steps
            }
        }
    }

    /// Whether no calls are allowed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::New | State::Open)
    }

    /// The state to report.
    pub(crate) const fn state(&self) -> BreakerState {
        match self.state {
            State::New | State::Open => BreakerState::Open,
            State::Closing(_) => BreakerState::Closing,
            State::Closed => BreakerState::Closed,
        }
    }

    /// Time until the next step while the breaker is closing.
    pub(crate) fn ramp_interval(&self) -> Option<Duration> {
        matches!(self.state, State::Closing(_)).then_some(RAMP_STEP)
    }

    /// Records a successful call.
    pub(crate) fn record_success(&mut self, now: Instant) -> Option<BreakerChange> {
        self.count_call(now, false);
        self.consecutive_failures = 0;
        match self.state {
            State::Closing(since) if now - since >= RAMP_STEP * (RAMP_STEPS - 1) => {
                self.state = State::Closed;
                Some(BreakerChange::Closed)
            }
            _ => None,
        }
    }

    /// Records a failed or timed-out call.
    pub(crate) fn record_failure(&mut self, now: Instant) -> Option<BreakerChange> {
        self.count_call(now, true);
        self.consecutive_failures += 1;
        let often = self.calls >= MIN_CALLS && self.failures * 2 >= self.calls;
        match self.state {
            State::New | State::Open => None,
            State::Closed if self.consecutive_failures < MAX_CONSECUTIVE_FAILURES && !often => None,
            _ => self.record_disconnect(now),
        }
    }

    /// Records a lost connection, which opens the breaker.
    pub(crate) fn record_disconnect(&mut self, now: Instant) -> Option<BreakerChange> {
        let before = std::mem::replace(self, Self { state: State::Open, ..Self::new(now) });
        (before.state == State::Closed).then_some(BreakerChange::Opened)
    }

    /// Records a successful probe: starts the ramp, or closes at once if this is the first
    /// connection.
    pub(crate) fn record_probe(&mut self, now: Instant) -> Option<BreakerChange> {
        let (state, change) = match self.state {
            State::New => (State::Closed, Some(BreakerChange::Closed)),
            State::Open => (State::Closing(now), None),
            State::Closed | State::Closing(_) => return None,
        };
        *self = Self { state, ..Self::new(now) };
        change
    }

    fn count_call(&mut self, now: Instant, failed: bool) {
        if now - self.window_start >= FAILURE_WINDOW {
            (self.window_start, self.calls, self.failures) = (now, 0, 0);
        }
        self.calls += 1;
        self.failures += u32::from(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed_breaker(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(now);
        assert!(!breaker.admits(now));
        assert_eq!(breaker.record_probe(now), Some(BreakerChange::Closed));
        breaker
    }

    #[tokio::test]
    async fn consecutive_failures_open_breaker() {
        let now = Instant::now();
        let mut breaker = closed_breaker(now);
        for _ in 0..3 {
            for _ in 1..MAX_CONSECUTIVE_FAILURES {
                assert_eq!(breaker.record_failure(now), None);
            }
            breaker.record_success(now);
            breaker.window_start = now - FAILURE_WINDOW;
        }
        for _ in 1..MAX_CONSECUTIVE_FAILURES {
            assert!(breaker.admits(now));
            assert_eq!(breaker.record_failure(now), None);
        }
        assert_eq!(breaker.record_failure(now), Some(BreakerChange::Opened));
        assert!(!breaker.admits(now));
        assert_eq!(breaker.record_failure(now), None, "reported once");
    }

    #[tokio::test]
    async fn half_failed_calls_open_breaker() {
        let now = Instant::now();
        let mut breaker = closed_breaker(now);
        let changes = (0..MIN_CALLS).filter_map(|call| match call % 2 {
            0 => breaker.record_success(now),
            _ => breaker.record_failure(now),
        });
        assert_eq!(changes.collect::<Vec<_>>(), [BreakerChange::Opened]);
        let mut breaker = closed_breaker(now);
        for call in 0..10 * MIN_CALLS {
            let change = if call % 3 == 0 {
                breaker.record_failure(now)
            } else {
                breaker.record_success(now)
            };
            assert_eq!(change, None, "a third of failures must not open the breaker");
        }
    }

    #[tokio::test]
    async fn probed_breaker_ramps_up_traffic() {
        let start = Instant::now();
        let mut breaker = closed_breaker(start);
        breaker.record_disconnect(start);
        assert_eq!(breaker.record_probe(start), None);
        for step in 0..RAMP_STEPS {
            let now = start + RAMP_STEP * step;
            let admitted = (0..100).filter(|_| breaker.admits(now)).count();
            assert_eq!(admitted, 25 * (step as usize + 1));
            let change = breaker.record_success(now);
            assert_eq!(change, (step == RAMP_STEPS - 1).then_some(BreakerChange::Closed));
        }
        assert!(breaker.admits(start + FAILURE_WINDOW));
    }

    #[tokio::test]
    async fn failure_while_closing_reopens_without_event() {
        let now = Instant::now();
        let mut breaker = closed_breaker(now);
        breaker.record_disconnect(now);
        breaker.record_probe(now);
        assert_eq!(breaker.record_failure(now), None);
        assert!(breaker.is_open());
    }
}
