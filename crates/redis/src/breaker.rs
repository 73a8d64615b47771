//! When to stop asking a server, and how to begin again.
//!
//! Closed, everything is asked. After several failures in a row, or when half of the calls of the last
//! second failed, it opens: nothing is asked, except by the one who probes. When a probe with the real
//! script has succeeded, a growing share is asked until all is. Pure: it is handed `now`.

use std::time::Duration;

use tokio::time::Instant;

use crate::stats::BreakerState;

/// Failures in a row after which nothing more is asked.
const IN_A_ROW: u32 = 5;

/// Over how long the share of failures is taken, and of how many calls at least.
const SPAN: Duration = Duration::from_secs(1);
const LEAST_CALLS: u32 = 20;

/// The steps in which everything is asked again, and how long each lasts.
const STEPS: u32 = 4;
const STEP: Duration = Duration::from_millis(50);

/// Whether a server is asked.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    in_a_row: u32,
    since: Instant,
    calls: u32,
    failures: u32,
    /// Counts who comes while a share is asked.
    comers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not reached yet; there is nothing to go easy on.
    New,
    Closed,
    Open,
    /// Being closed since then.
    Closing(Instant),
}

/// What a call has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing is asked from now on.
    Opened,
    /// All is asked from now on.
    Closed,
}

impl Breaker {
    /// A breaker for a server that was not reached yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { state: State::New, in_a_row: 0, since: now, calls: 0, failures: 0, comers: 0 }
    }

    /// Whether the next call may be made.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::New | State::Open => false,
            State::Closing(since) => {
                let steps = (now - since).as_millis() / STEP.as_millis() + 1;
                self.comers = self.comers.wrapping_add(1);
                u128::from(self.comers % STEPS) < steps
            }
        }
    }

    /// Whether nothing is asked.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::New | State::Open)
    }

    /// What to tell of it.
    pub(crate) const fn state(&self) -> BreakerState {
        match self.state {
            State::New | State::Open => BreakerState::Open,
            State::Closing(_) => BreakerState::Closing,
            State::Closed => BreakerState::Closed,
        }
    }

    /// How long until a larger share is asked, while not all is.
    pub(crate) fn is_closing(&self) -> Option<Duration> {
        matches!(self.state, State::Closing(_)).then_some(STEP)
    }

    /// A call succeeded.
    pub(crate) fn succeeded(&mut self, now: Instant) -> Option<Change> {
        self.count(now, false);
        self.in_a_row = 0;
        match self.state {
            State::Closing(since) if now - since >= STEP * (STEPS - 1) => {
                self.state = State::Closed;
                Some(Change::Closed)
            }
            _ => None,
        }
    }

    /// A call failed or took too long.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Change> {
        self.count(now, true);
        self.in_a_row += 1;
        let often = self.calls >= LEAST_CALLS && self.failures * 2 >= self.calls;
        match self.state {
            State::New | State::Open => None,
            State::Closed if self.in_a_row < IN_A_ROW && !often => None,
            _ => self.lost(now),
        }
    }

    /// The connection is gone, so nothing can be asked.
    pub(crate) fn lost(&mut self, now: Instant) -> Option<Change> {
        let before = std::mem::replace(self, Self { state: State::Open, ..Self::new(now) });
        (before.state == State::Closed).then_some(Change::Opened)
    }

    /// A probe succeeded: from now on a share is asked, or all if it is the first.
    pub(crate) fn probed(&mut self, now: Instant) -> Option<Change> {
        let (state, change) = match self.state {
            State::New => (State::Closed, Some(Change::Closed)),
            State::Open => (State::Closing(now), None),
            State::Closed | State::Closing(_) => return None,
        };
        *self = Self { state, ..Self::new(now) };
        change
    }

    fn count(&mut self, now: Instant, failed: bool) {
        if now - self.since >= SPAN {
            (self.since, self.calls, self.failures) = (now, 0, 0);
        }
        self.calls += 1;
        self.failures += u32::from(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(now);
        assert!(!breaker.admits(now));
        assert_eq!(breaker.probed(now), Some(Change::Closed));
        breaker
    }

    #[tokio::test]
    async fn failures_in_a_row_open_it_and_a_success_between_starts_the_count_anew() {
        let now = Instant::now();
        let mut breaker = closed(now);
        for _ in 0..3 {
            for _ in 1..IN_A_ROW {
                assert_eq!(breaker.failed(now), None);
            }
            breaker.succeeded(now);
            breaker.since = now - SPAN;
        }
        for _ in 1..IN_A_ROW {
            assert!(breaker.admits(now));
            assert_eq!(breaker.failed(now), None);
        }
        assert_eq!(breaker.failed(now), Some(Change::Opened));
        assert!(!breaker.admits(now));
        assert_eq!(breaker.failed(now), None, "told once");
    }

    #[tokio::test]
    async fn half_of_the_calls_of_a_second_open_it() {
        let now = Instant::now();
        let mut breaker = closed(now);
        let changes = (0..LEAST_CALLS).filter_map(|call| match call % 2 {
            0 => breaker.succeeded(now),
            _ => breaker.failed(now),
        });
        assert_eq!(changes.collect::<Vec<_>>(), [Change::Opened]);
        let mut breaker = closed(now);
        for call in 0..10 * LEAST_CALLS {
            let told = if call % 3 == 0 { breaker.failed(now) } else { breaker.succeeded(now) };
            assert_eq!(told, None, "a third is not half");
        }
    }

    #[tokio::test]
    async fn after_a_probe_a_growing_share_is_asked_until_all_is() {
        let start = Instant::now();
        let mut breaker = closed(start);
        breaker.lost(start);
        assert_eq!(breaker.probed(start), None);
        for step in 0..STEPS {
            let now = start + STEP * step;
            let asked = (0..100).filter(|_| breaker.admits(now)).count();
            assert_eq!(asked, 25 * (step as usize + 1));
            let told = breaker.succeeded(now);
            assert_eq!(told, (step == STEPS - 1).then_some(Change::Closed));
        }
        assert!(breaker.admits(start + SPAN));
    }

    #[tokio::test]
    async fn a_failure_while_it_closes_opens_it_again_without_telling() {
        let now = Instant::now();
        let mut breaker = closed(now);
        breaker.lost(now);
        breaker.probed(now);
        assert_eq!(breaker.failed(now), None);
        assert!(breaker.is_open());
    }
}
