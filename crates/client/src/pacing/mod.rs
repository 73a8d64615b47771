//! The pacing of calls to one server: a state machine without a clock and without I/O. It learns
//! from responses, and answers when the next call may be sent.

mod adaptive_rate;
mod collision_caution;
mod quota_estimate;

use std::time::Duration;

use crate::headers::{CallOutcome, ResponseHints};
use adaptive_rate::AdaptiveRate;
use collision_caution::CollisionCaution;
use quota_estimate::QuotaEstimate;

/// Calls per second that may be sent before the server has answered the first one.
const UNANSWERED_PER_SEC: u64 = 10;

/// How far a late sender may catch up. Timers are coarser than the gap between fast calls.
const CATCH_UP: Duration = Duration::from_millis(20);

/// Decides when calls to one server may be sent, so that it does not have to refuse them.
///
/// A call is sent in three steps: [`ask`](Self::ask) says when, [`record_send`](Self::record_send)
/// counts it, and [`observe`](Self::observe) learns from its response. Every `now` is the time
/// since an origin that the caller chooses. It must not go back.
///
/// If the server reports its remaining quota, the pacer spreads that over the time for which it
/// must last. Clients that share the quota without knowing of each other therefore slow down
/// together before it is used up. If the server reports nothing, the pacer finds the rate by
/// itself, from refusals.
///
/// No answer is further away than the ceiling, whatever the server says.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{Pacer, PacingAnswer, ResponseHints};
///
/// let mut pacer = Pacer::new(Duration::from_secs(20));
/// let now = Duration::ZERO;
/// assert_eq!(pacer.ask(now, None, 0), PacingAnswer::SendNow);
/// let ticket = pacer.record_send(now, 1);
///
/// let refusal = http::Response::builder().status(429).header("retry-after", "3").body(())?;
/// pacer.observe(&ticket, &ResponseHints::from_response(&refusal, None), now);
/// assert_eq!(pacer.ask(now, None, 0), PacingAnswer::WaitUntil(Duration::from_secs(3)));
///
/// let deadline = Some(Duration::from_secs(1));
/// let needed = Duration::from_secs(3);
/// assert_eq!(pacer.ask(now, deadline, 0), PacingAnswer::GiveUp { needed });
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    ceiling: Duration,
    /// The server's numbers in its latest response that had any.
    quotas: Vec<QuotaEstimate>,
    /// Units sent before and with the call that `quotas` are from.
    counted: u64,
    adaptive: AdaptiveRate,
    caution: CollisionCaution,
    blocked_until: Duration,
    /// When the last call was due. The next one is due one gap later.
    paced_from: Duration,
    first_send: Option<Duration>,
    last_send: Option<Duration>,
    /// When the last call was sent or answered.
    last_event: Duration,
    is_answered: bool,
    sent: u64,
}

/// Whether a call may be sent.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{Pacer, PacingAnswer};
///
/// let pacer = Pacer::new(Duration::from_secs(20));
/// match pacer.ask(Duration::ZERO, None, 0) {
///     PacingAnswer::SendNow => {}
///     PacingAnswer::WaitUntil(at) => panic!("nothing was sent, so why wait until {at:?}?"),
///     PacingAnswer::GiveUp { needed } => panic!("no deadline, but {needed:?} is too long"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacingAnswer {
    /// Send it now.
    SendNow,
    /// Ask again at this time, or when a response arrives, if that is earlier.
    WaitUntil(Duration),
    /// The deadline is earlier than the call's turn.
    GiveUp {
        /// How long the call would have to wait.
        needed: Duration,
    },
}

/// Identifies a call that was sent, so that its response can be [observed](Pacer::observe).
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{Pacer, ResponseHints, SendTicket};
///
/// let mut pacer = Pacer::new(Duration::from_secs(20));
/// let ticket: SendTicket = pacer.record_send(Duration::ZERO, 1);
/// pacer.observe(&ticket, &ResponseHints::default(), Duration::from_millis(40));
/// ```
#[derive(Debug)]
pub struct SendTicket {
    sent_at: Duration,
    /// Units sent before and with this call.
    counted: u64,
}

/// When a call was sent and answered.
#[derive(Clone, Copy, Debug)]
struct CallTiming {
    sent_at: Duration,
    answered_at: Duration,
    /// Units sent before and with this call.
    counted: u64,
}

/// When the next call is due, and the gap to the one after it.
#[derive(Clone, Copy, Debug, Default)]
struct SendTurn {
    at: Duration,
    gap: Duration,
}

impl Pacer {
    /// A pacer that never waits longer than `ceiling` before it tries again.
    #[must_use]
    pub fn new(ceiling: Duration) -> Self {
        Self {
            ceiling,
            quotas: Vec::new(),
            counted: 0,
            adaptive: AdaptiveRate::default(),
            caution: CollisionCaution::default(),
            blocked_until: Duration::ZERO,
            paced_from: Duration::ZERO,
            first_send: None,
            last_send: None,
            last_event: Duration::ZERO,
            is_answered: false,
            sent: 0,
        }
    }

    /// When a call may be sent that waits behind `ahead` others.
    #[must_use]
    pub fn ask(&self, now: Duration, deadline: Option<Duration>, ahead: usize) -> PacingAnswer {
        let turn = self.next_turn(now);
        let others = turn.gap.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        let at = turn.at.saturating_add(others);
        if at <= now {
            return PacingAnswer::SendNow;
        }
        match deadline {
            Some(deadline) if at > deadline => PacingAnswer::GiveUp { needed: at - now },
            _ => PacingAnswer::WaitUntil(at),
        }
    }

    /// Counts a call that is sent now and costs `cost` units.
    pub fn record_send(&mut self, now: Duration, cost: u32) -> SendTicket {
        let gap = self.next_turn(now).gap.saturating_mul(cost).min(self.ceiling);
        self.paced_from = self.paced_from.max(now.saturating_sub(CATCH_UP)).saturating_add(gap);
        // A caller that did not wait for its turn does not put off the next one for ever.
        self.paced_from = self.paced_from.min(now.saturating_add(gap));
        self.first_send.get_or_insert(now);
        self.last_send = Some(now);
        self.last_event = now;
        self.sent = self.sent.saturating_add(u64::from(cost));
        SendTicket { sent_at: now, counted: self.sent }
    }

    /// Learns from the response to a call.
    pub fn observe(&mut self, ticket: &SendTicket, hints: &ResponseHints, now: Duration) {
        self.is_answered = true;
        self.last_event = now;
        let timing =
            CallTiming { sent_at: ticket.sent_at, answered_at: now, counted: ticket.counted };
        let explains = hints.quotas.iter().any(|quota| quota.remaining == 0);
        match hints.outcome {
            CallOutcome::Accepted => self.adaptive.record_accepted(now),
            // The numbers say how to go on.
            CallOutcome::Refused if explains => self.raise_caution(hints, timing),
            CallOutcome::Refused | CallOutcome::Overloaded => {
                self.adaptive.record_refused(ticket.sent_at, now);
            }
        }
        if let Some(wait) = hints.retry_after.filter(|_| hints.outcome != CallOutcome::Accepted) {
            self.block_until(now.saturating_add(wait.min(self.ceiling)));
        }
        if hints.quotas.is_empty() {
            self.adaptive.start(now);
            if hints.outcome == CallOutcome::Accepted {
                // The numbers of another response do not hold for ever.
                self.quotas.retain(|quota| !quota.is_outdated(timing.sent_at));
            }
        } else if timing.counted >= self.counted {
            self.counted = timing.counted;
            self.install_quotas(hints, timing);
        }
    }

    /// Sends nothing before `at`.
    pub fn block_until(&mut self, at: Duration) {
        self.blocked_until = self.blocked_until.max(at);
    }

    /// The calls per second that may be sent now; `None` if nothing limits them.
    #[must_use]
    pub fn current_rate(&self, now: Duration) -> Option<f64> {
        let turn = self.next_turn(now);
        if self.blocked_until > now {
            return Some(0.0);
        }
        (!turn.gap.is_zero()).then(|| turn.gap.as_secs_f64().recip())
    }

    /// Leaves a larger reserve if other clients took what this one meant to spend.
    fn raise_caution(&mut self, hints: &ResponseHints, timing: CallTiming) {
        let wait = hints.retry_after.unwrap_or_default();
        if self.quotas.iter().any(|quota| quota.is_short_wait(wait)) {
            self.caution.raise(timing.sent_at, timing.answered_at);
        }
    }

    /// Only the policies in the latest response count: a server need not repeat those with more
    /// room.
    fn install_quotas(&mut self, hints: &ResponseHints, timing: CallTiming) {
        let is_exact = hints.outcome != CallOutcome::Accepted && hints.retry_after.is_some();
        let previous = std::mem::take(&mut self.quotas);
        let estimates = hints.quotas.iter().map(|numbers| {
            let same = previous.iter().find(|quota| quota.policy() == numbers.policy);
            QuotaEstimate::new(numbers, timing, is_exact, same)
        });
        self.quotas = estimates.collect();
    }

    fn next_turn(&self, now: Duration) -> SendTurn {
        let mut turn = SendTurn { at: self.blocked_until, gap: self.adaptive.gap(now) };
        let caution = self.caution.factor(now);
        for quota in &self.quotas {
            let other = quota.next_turn(now, self.sent, self.last_send, caution);
            turn = SendTurn { at: turn.at.max(other.at), gap: turn.gap.max(other.gap) };
        }
        turn.gap = turn.gap.min(self.ceiling);
        if !turn.gap.is_zero() {
            turn.at = turn.at.max(self.paced_from.saturating_add(turn.gap));
        }
        if let (false, Some(first)) = (self.is_answered, self.first_send) {
            let allowed_after = Duration::from_secs(self.sent / UNANSWERED_PER_SEC);
            turn.at = turn.at.max(first.saturating_add(allowed_after));
        }
        turn.at = turn.at.min(self.last_event.saturating_add(self.ceiling));
        turn
    }
}

#[cfg(test)]
mod tests;
