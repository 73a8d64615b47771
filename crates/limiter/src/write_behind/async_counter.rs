//! One asynchronous counter on one node: a state machine without clock, lock or I/O.
//!
//! The caller passes the time of the lease clock, and carries flushes to the store and answers
//! back. Units are *open* from their admission until the store has confirmed them. A node never has
//! more than its part of the limit open, so at most one limit in total is unknown to the store.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};

use super::counter_view::{CounterView, overshoot};

/// A node's view of a counter, and the units that it admitted and has not reported.
#[derive(Debug)]
pub(super) struct AsyncCounter {
    policy: Policy,
    /// The time between two flushes.
    interval: Micros,
    view: Option<CounterView>,
    /// Units admitted and not sent yet.
    unsent: u64,
    /// The first flush that units in `unsent` were admitted for. It is the next one, unless a
    /// flush was put back.
    unsent_since: u64,
    /// The flush that the store has not answered yet.
    in_flight: Option<Flush>,
    /// Units of flushes that may have run. They stay open until the next answer.
    lost: u64,
    /// Number of the last flush.
    flushes: u64,
    last_flush_at: Timestamp,
    /// Whether a request needed a newer view since the last flush.
    needs_view: bool,
    /// Before this time no flush is sent early, because the store did not answer.
    direct_until: Timestamp,
}

/// A report to the store of what was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    pub(super) number: u64,
    pub(super) units: u64,
    /// The first flush that the units were admitted for.
    since: u64,
    asked_at: Timestamp,
}

/// The outcome of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushOutcome {
    /// The store charged the units.
    Answered(Reading),
    /// The store did not charge them.
    NotApplied,
    /// The store may have charged them.
    Unknown,
}

/// The result of [`AsyncCounter::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Admitted; this flush reports it.
    Admitted(u64),
    /// By the node's view, the limit is reached.
    Refused,
    /// The node's part is open. The answer to this flush decides.
    Wait(u64),
    /// The request is charged at the store.
    Direct,
}

impl AsyncCounter {
    pub(super) const fn new(policy: Policy, interval: Micros, now: Timestamp) -> Self {
        Self {
            policy,
            interval,
            view: None,
            unsent: 0,
            // No number of an earlier state of the counter is used again.
            unsent_since: now.as_micros() + 1,
            in_flight: None,
            lost: 0,
            flushes: now.as_micros(),
            last_flush_at: now,
            needs_view: false,
            direct_until: Timestamp::EPOCH,
        }
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Units that the store has not confirmed.
    pub(super) fn open_units(&self) -> u64 {
        let in_flight = self.in_flight.map_or(0, |flush| flush.units);
        self.unsent.saturating_add(in_flight).saturating_add(self.lost)
    }

    /// The flush that the store has not answered yet.
    pub(super) const fn in_flight(&self) -> Option<&Flush> {
        self.in_flight.as_ref()
    }

    /// Decides a request. May start a flush ([`in_flight`](Self::in_flight)).
    pub(super) fn admit(&mut self, cost: u64, nodes: u32, now: Timestamp) -> Admission {
        let part = self.policy.limit() / u64::from(nodes.max(1));
        let room = self.fresh_view(now).map(|view| view.room(&self.policy, now));
        let Some(room) = room.filter(|_| part > 0 && cost <= part) else {
            self.needs_view |= self.lost > 0;
            return Admission::Direct;
        };
        let open = self.open_units().saturating_add(cost);
        if open > room {
            self.needs_view = true;
            return Admission::Refused;
        }
        if open > part {
            return self.wait_for_part(now);
        }
        self.unsent += cost;
        let flush = self.flushes + 1;
        if open == part && self.can_flush_early(now) {
            self.start_flush(now);
        }
        Admission::Admitted(flush)
    }

    /// Cancels the units of a request if they have not been sent. Returns whether it did.
    pub(super) const fn take_back(&mut self, cost: u64, flush: u64) -> bool {
        let is_unsent = flush >= self.unsent_since && cost <= self.unsent;
        if is_unsent {
            self.unsent -= cost;
        }
        is_unsent
    }

    /// Processes the store's answer to a request that it decided.
    pub(super) fn on_direct_answer(
        &mut self,
        reading: Reading,
        asked_at: Timestamp,
        now: Timestamp,
    ) {
        self.update_view(CounterView::new(reading, asked_at, now), now);
    }

    /// Processes the outcome of a flush. Returns the units that did not fit, or `None` if this
    /// flush is not in flight.
    pub(super) fn on_flushed(
        &mut self,
        number: u64,
        outcome: FlushOutcome,
        now: Timestamp,
    ) -> Option<u64> {
        let flush = self.in_flight.take_if(|flush| flush.number == number)?;
        if !matches!(outcome, FlushOutcome::Answered(_)) {
            self.direct_until = flush.asked_at.plus(self.interval);
        }
        match outcome {
            FlushOutcome::Answered(reading) => {
                self.lost = 0;
                self.direct_until = Timestamp::EPOCH;
                let view = CounterView::new(reading, flush.asked_at, now);
                // A later answer includes the flush, unless the store's clock went back: then it
                // shows room that the flush has used.
                let known = self.view.as_ref();
                let is_overtaken = known.is_some_and(|known| !view.is_later_than(known));
                self.view = (!is_overtaken).then_some(view);
                return Some(overshoot(&self.policy, flush.units, &reading));
            }
            FlushOutcome::NotApplied => {
                self.unsent = self.unsent.saturating_add(flush.units);
                self.unsent_since = flush.since;
            }
            FlushOutcome::Unknown => self.lost = self.lost.saturating_add(flush.units),
        }
        Some(0)
    }

    /// Starts a flush if it is time for one.
    pub(super) fn flush_if_due(&mut self, now: Timestamp) -> Option<Flush> {
        let due = self.in_flight.is_none() && now.since(self.last_flush_at) >= self.interval;
        (due && (self.unsent > 0 || self.needs_view)).then(|| self.start_flush(now))
    }

    /// Starts a flush if there is anything to send.
    pub(super) fn flush_now(&mut self, now: Timestamp) -> Option<Flush> {
        (self.in_flight.is_none() && self.unsent > 0).then(|| self.start_flush(now))
    }

    /// Whether the counter is still of use.
    pub(super) fn is_in_use(&self, now: Timestamp) -> bool {
        self.in_flight.is_some() || self.unsent > 0 || self.fresh_view(now).is_some()
    }

    pub(super) const fn interval(&self) -> Micros {
        self.interval
    }

    /// Switches to another policy, and drops the view.
    pub(super) fn follow(&mut self, policy: Policy, interval: Micros) {
        if self.policy != policy {
            (self.policy, self.view) = (policy, None);
        }
        self.interval = interval;
    }

    /// The reading of a request that was admitted.
    pub(super) fn reading(&self, now: Timestamp) -> Reading {
        let limit = self.policy.limit();
        let view = self.view.as_ref();
        view.map_or(Reading { limit, ..Reading::default() }, |view| {
            view.reading(&self.policy, self.open_units(), now)
        })
    }

    /// The reading of a request that was refused. The node knows more only after its next flush.
    pub(super) fn refusal(&self, cost: u64, now: Timestamp) -> Reading {
        let needed = self.open_units().saturating_add(cost);
        let wait = self.view.map(|view| view.wait_for(&self.policy, needed, now));
        // The answer to the next flush rounds up again.
        let wait = Micros::new(wait.unwrap_or_default().get().saturating_add(1));
        let next_flush = self.last_flush_at.plus(self.interval).since(now);
        let wait = wait.max(next_flush);
        Reading { verdict: Verdict::Deny, retry: Retry::After(wait), ..self.reading(now) }
    }

    fn wait_for_part(&mut self, now: Timestamp) -> Admission {
        if let Some(flush) = &self.in_flight {
            return Admission::Wait(flush.number);
        }
        if !self.can_flush_early(now) {
            return Admission::Direct;
        }
        Admission::Wait(self.start_flush(now).number)
    }

    fn can_flush_early(&self, now: Timestamp) -> bool {
        self.in_flight.is_none() && now >= self.direct_until
    }

    fn start_flush(&mut self, now: Timestamp) -> Flush {
        self.flushes += 1;
        let (number, units) = (self.flushes, std::mem::take(&mut self.unsent));
        let flush = Flush { number, units, since: self.unsent_since, asked_at: now };
        (self.unsent_since, self.last_flush_at) = (number + 1, now);
        (self.needs_view, self.in_flight) = (false, Some(flush));
        flush
    }

    /// The view, unless it is older than two intervals. Requests then go to the store, so that
    /// `on_fail` applies if it does not answer.
    fn fresh_view(&self, now: Timestamp) -> Option<&CounterView> {
        let oldest = Micros::new(self.interval.get().saturating_mul(2));
        self.view.as_ref().filter(|view| view.age(now) <= oldest)
    }

    /// Keeps the later of two answers: it includes what the other one does.
    fn update_view(&mut self, view: CounterView, now: Timestamp) {
        if self.fresh_view(now).is_none_or(|known| view.is_later_than(known)) {
            self.view = Some(view);
        }
    }
}
