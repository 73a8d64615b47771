//! Estimates the remaining quota of one policy from the server's numbers, and spreads it over the
//! time for which it must last.

use std::time::Duration;

use super::{CallTiming, SendTurn};
use crate::headers::QuotaNumbers;

/// How long the rest of a refilling quota must last. The level settles where all clients together
/// send as fast as it refills, so a longer time keeps a larger reserve.
const MIN_HORIZON: Duration = Duration::from_secs(2);

/// The reserve of a slowly refilling quota, in units: enough for a few clients that do not know of
/// each other.
const RESERVE_UNITS: u32 = 10;

/// The rest of a window is never spread over less than this.
const MIN_WINDOW_REST: Duration = Duration::from_millis(500);

/// Servers round waits down or up to whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// The wait between calls that find out whether a used-up quota is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The share of a full quota that is always treated as used, so that the gap is not zero.
const MIN_USED_SHARE: f64 = 0.001;

/// The numbers of one policy in the latest response.
#[derive(Clone, Debug)]
pub(super) struct QuotaEstimate {
    policy: String,
    remaining: u64,
    reported_limit: Option<u64>,
    limit: u64,
    /// The time in which a refilling quota gains one unit, if the server reports it.
    refill_interval: Option<Duration>,
    timing: CallTiming,
    window_end: Option<WindowEnd>,
    /// Whether the quota is restored at the end of a window, not little by little.
    is_window: bool,
    /// Whether the quota was seen to grow before its reset. Servers that only send a reset mean the
    /// end of a window, or the time until a bucket is full.
    is_refilling: bool,
    /// The lowest remaining quota before the window ends.
    lowest: u64,
}

/// The earliest and latest time at which a window ends. Each response narrows it down.
#[derive(Clone, Copy, Debug)]
struct WindowEnd {
    earliest: Duration,
    latest: Duration,
}

impl QuotaEstimate {
    /// The numbers of a response. `is_exact` says that the reset is not rounded. `previous` are the
    /// numbers of the same policy before.
    pub(super) fn new(
        numbers: &QuotaNumbers,
        timing: CallTiming,
        is_exact: bool,
        previous: Option<&Self>,
    ) -> Self {
        let refill_interval = numbers
            .window
            .zip(numbers.limit)
            .map(|(window, limit)| window / u32::try_from(limit).unwrap_or(u32::MAX).max(1));
        let window_end = numbers.reset_after.map(|after| WindowEnd {
            earliest: timing.sent_at.saturating_add(after),
            latest: (timing.answered_at.saturating_add(after)).saturating_add(if is_exact {
                Duration::ZERO
            } else {
                ROUNDING
            }),
        });
        let longest_refill =
            refill_interval.map_or(Duration::ZERO, |span| span.saturating_add(ROUNDING));
        let is_window = numbers.reset_after.is_some_and(|after| after > longest_refill);
        let known = previous.and_then(|previous| previous.window_end?.meet(window_end?));
        let was_window = known.is_some() && previous.is_some_and(|previous| previous.is_window);
        let previous = previous.filter(|previous| !previous.may_have_ended(timing.answered_at));
        let is_refilling = numbers.window.is_none()
            && previous.is_some_and(|previous| previous.is_refilled_by(numbers));
        let lowest = previous.map_or(u64::MAX, |previous| previous.lowest).min(numbers.remaining);
        Self {
            policy: numbers.policy.clone(),
            remaining: numbers.remaining,
            reported_limit: numbers.limit,
            limit: numbers.limit.unwrap_or(0).max(numbers.remaining),
            refill_interval,
            timing,
            window_end: known.or(window_end),
            is_window: !is_refilling && (is_window || was_window),
            is_refilling,
            lowest,
        }
    }

    /// Whether the newer numbers show that the quota grows before its reset. Responses may overtake
    /// each other, so a little growth proves nothing.
    fn is_refilled_by(&self, newer: &QuotaNumbers) -> bool {
        let has_grown = newer.limit == self.reported_limit
            && newer.remaining > self.lowest.saturating_add(self.limit / 10);
        self.is_refilling || has_grown && self.window_end.is_some()
    }

    /// Whether a response at this time may be about the next window. Resets and dates are rounded.
    fn may_have_ended(&self, now: Duration) -> bool {
        self.window_end.is_some_and(|end| now.saturating_add(2 * ROUNDING) >= end.earliest)
    }

    /// Whether a wait as long as this is for a unit of the quota, and not for the end of a window.
    pub(super) fn is_short_wait(&self, wait: Duration) -> bool {
        !self.is_window && wait <= self.refill_interval.unwrap_or_default().saturating_add(ROUNDING)
    }

    pub(super) fn policy(&self) -> &str {
        &self.policy
    }

    /// Whether a response to a call sent at `sent_at` would have repeated these numbers, if they
    /// still applied.
    pub(super) fn is_outdated(&self, sent_at: Duration) -> bool {
        let until = match self.window_end {
            Some(end) => end.latest,
            None => self.timing.answered_at.saturating_add(self.horizon(sent_at, 1)),
        };
        sent_at > until
    }

    /// When the next call may be sent, if `sent` units were sent so far.
    pub(super) fn next_turn(
        &self,
        now: Duration,
        sent: u64,
        last_send: Option<Duration>,
        caution: u32,
    ) -> SendTurn {
        // The server has not counted the calls in flight.
        let left = self.remaining.saturating_sub(sent.saturating_sub(self.timing.counted));
        if left == 0 || self.has_ended(now) && self.is_window {
            return self.probe_turn(last_send, caution);
        }
        SendTurn { at: Duration::ZERO, gap: self.gap(now, left, caution) }
    }

    fn has_ended(&self, now: Duration) -> bool {
        self.window_end.is_some_and(|end| now >= end.latest)
    }

    /// One call finds out whether the quota is back.
    fn probe_turn(&self, last_send: Option<Duration>, caution: u32) -> SendTurn {
        let interval = self.refill_interval.unwrap_or(PROBE_INTERVAL).min(PROBE_INTERVAL);
        let first = match self.window_end {
            Some(end) if self.is_window => end.latest,
            // Other clients wait for the same unit.
            Some(end) => end.latest.saturating_add(interval.saturating_mul(caution - 1)),
            None => self.timing.answered_at.saturating_add(interval.saturating_mul(caution)),
        };
        let next = last_send.filter(|sent_at| *sent_at >= first);
        let at = next.map_or(first, |sent_at| sent_at.saturating_add(PROBE_INTERVAL));
        SendTurn { at, gap: interval }
    }

    /// The gap between calls that spreads the rest. The fuller the quota is, the smaller the gap,
    /// so that short bursts after idle times are not delayed.
    #[expect(clippy::cast_precision_loss, reason = "rates need no more precision")]
    fn gap(&self, now: Duration, left: u64, caution: u32) -> Duration {
        let used_share = (1.0 - left as f64 / self.limit.max(1) as f64).max(MIN_USED_SHARE);
        let gap = self.horizon(now, caution).as_secs_f64() / left as f64 * used_share;
        Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX)
    }

    /// The time for which the rest of the quota must last.
    fn horizon(&self, now: Duration, caution: u32) -> Duration {
        match self.window_end.filter(|_| self.is_window) {
            Some(end) => end.latest.saturating_sub(now).max(MIN_WINDOW_REST),
            None => self.reserve_time().saturating_mul(caution),
        }
    }

    /// The time in which a refilling quota gains the reserve that is left for other clients: at most
    /// half of the quota.
    fn reserve_time(&self) -> Duration {
        let Some(refill) = self.refill_interval else { return MIN_HORIZON };
        let half = u32::try_from(self.limit.div_ceil(2)).unwrap_or(u32::MAX);
        refill.saturating_mul(RESERVE_UNITS).max(MIN_HORIZON).min(refill.saturating_mul(half))
    }
}

impl WindowEnd {
    /// What both say; `None` if they are about different windows.
    fn meet(self, other: Self) -> Option<Self> {
        let earliest = self.earliest.max(other.earliest);
        let latest = self.latest.min(other.latest);
        (earliest <= latest).then_some(Self { earliest, latest })
    }
}
