//! The leases of one node on one counter: a state machine without clock, lock or I/O.
//!
//! The caller passes the time of the lease clock, and carries questions to the store and answers
//! back. A lease is void `ttl` after its question was *asked*, so nothing is spent later than that
//! after the store charged it, however long the answer took.

use smallvec::SmallVec;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::policy::{Algorithm, Meter, Policy};
use tidegate_core::store::GrantTerms;
use tidegate_core::time::{Micros, Timestamp};

use super::demand::{DemandMeter, FEW_UNITS};
use super::held_leases::{HeldLeases, UnitOrigin, UnspentUnits};
use super::last_reading::{LastReading, most_parts};
use super::seeded_bug::{BugSwitch, SeededBug};
use super::wait_estimate::{CounterDebt, wait_until_fits};

/// A counter is leased once it has this many requests within a lease: fewer calls are then needed
/// than if each request asked the store.
pub(crate) const HOT_REQUESTS: u32 = 5;

/// A counter stays leased while it has this many requests within half a lease to a lease. It is far
/// from the number above, because a lease that is given up in between wastes units.
pub(super) const WARM_REQUESTS: u32 = 2;

/// A lease of fewer units than this is renewed by the next request that finds none left: asked for
/// earlier, units end unspent.
const RENEWED_UNITS: u64 = 4;

/// The leases of a node on one counter.
#[derive(Debug)]
pub(super) struct CounterLease {
    policy: Policy,
    ttl: Micros,
    bug: BugSwitch,
    held: HeldLeases,
    demand: DemandMeter,
    /// The question that the store has not answered yet.
    question: Option<Question>,
    /// The number of the last question. No two counters use the same numbers, so an answer meant
    /// for an earlier counter with this key is recognised.
    questions: u64,
    last: Option<LastAnswer>,
    /// Set while the store is short.
    pause: Option<Pause>,
    /// Until when requests are charged one by one, because the store did not answer.
    direct_until: Timestamp,
}

/// A question to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) asked_at: Timestamp,
    /// The smallest grant that is useful.
    pub(super) least: u64,
    pub(super) terms: GrantTerms,
    /// What the node needs: more than it asks for while the store is short.
    wanted: u64,
    nodes: u64,
}

#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    view: LastReading,
    /// The smallest grant that the question asked for.
    least: u64,
    /// Units of the last grant.
    granted: u64,
    /// Whether the counter had room, so that it is not in debt.
    had_room: bool,
}

/// While the store is short, the node asks at most once in half a lease.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    /// Requests that cost less were not refused, so they may ask.
    min_cost: u64,
}

/// The result of [`CounterLease::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Units of the lease that was granted at this instant are spent.
    Spent(Timestamp),
    /// The store is short; the reading says when to retry.
    Refused,
    /// The answer to this question decides.
    Wait(u64),
    /// The request is charged at the store.
    Direct,
}

impl CounterLease {
    pub(super) fn new(
        policy: Policy,
        ttl: Micros,
        bug: BugSwitch,
        requests: u32,
        first_question: u64,
        now: Timestamp,
    ) -> Self {
        let mut demand = DemandMeter::new(Micros::new(ttl.get() / 2), now);
        demand.record(requests, requests.into(), now);
        Self {
            policy,
            ttl,
            bug,
            held: HeldLeases::default(),
            demand,
            question: None,
            questions: first_question,
            last: None,
            pause: None,
            direct_until: Timestamp::EPOCH,
        }
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) const fn ttl(&self) -> Micros {
        self.ttl
    }

    /// The units that the node holds.
    pub(super) fn units_left(&self) -> u64 {
        self.held.units()
    }

    /// The question in flight, if any.
    pub(super) const fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    /// Takes units for a request. May ask a new question ([`question`](Self::question)), also when
    /// it spends units, so that the next requests need not wait.
    pub(super) fn take(&mut self, cost: u64, nodes: u32, now: Timestamp) -> Take {
        self.demand.record(1, cost, now);
        self.try_take(cost, nodes, now)
    }

    /// Takes units for a request whose demand is already recorded.
    pub(super) fn try_take(&mut self, cost: u64, nodes: u32, now: Timestamp) -> Take {
        self.drop_ended(now);
        if let Some(UnitOrigin { granted_at, .. }) = self.held.spend(cost) {
            if self.should_renew(now) {
                self.ask(1, nodes, now);
            }
            return Take::Spent(granted_at);
        }
        if let Some(question) = &self.question {
            return Take::Wait(question.number);
        }
        if cost > self.policy.limit() || now < self.direct_until || self.is_cold(now) {
            return Take::Direct;
        }
        if self.is_paused(cost, now) {
            return Take::Refused;
        }
        self.ask(cost, nodes, now);
        Take::Wait(self.questions)
    }

    /// Processes the answer to a question; `None` if the store did not answer. The grant may then
    /// have been made, and its units are lost.
    pub(super) fn on_answer(&mut self, number: u64, answer: Option<Reading>, now: Timestamp) {
        let Some(question) = self.question.take_if(|question| question.number == number) else {
            return;
        };
        let half = Micros::new(self.ttl.get() / 2);
        let Some(reading) = answer else {
            self.direct_until = question.asked_at.plus(half);
            return;
        };
        let granted = u64::from(reading.granted);
        let span = self.policy.lease_span(self.ttl, reading.now);
        let from = match self.bug.has(SeededBug::ExpiryFromAnswer) {
            true => now,
            false => question.asked_at,
        };
        self.held.add(granted, UnitOrigin::own(reading.now), from.plus(span));
        self.drop_ended(now);
        let (wanted, room) = (question.wanted, reading.remaining.saturating_add(granted));
        let short = match u64::from(question.terms.most) < wanted {
            // The node asked for less than it needs.
            true => room < (wanted * question.nodes).min(self.policy.limit() / 2),
            false => granted < wanted && room < wanted.saturating_mul(4 * question.nodes),
        };
        let min_cost = if granted == 0 { question.least } else { 0 };
        let until = match self.policy.algorithm() {
            // The next window is full, so there is nothing to wait for beyond this one.
            Algorithm::FixedWindow => {
                question.asked_at.plus(half).min(now.plus(reading.next_after))
            }
            _ => question.asked_at.plus(self.pace()),
        };
        self.pause = short.then_some(Pause { until, min_cost });
        let (least, had_room) = (question.least, granted > 0);
        let view = LastReading { reading, at: now };
        self.last = Some(LastAnswer { view, least, granted, had_room });
    }

    /// Processes the store's answer to a request that it decided, unless a later answer is known.
    pub(super) fn on_direct_answer(&mut self, cost: u64, reading: Reading, now: Timestamp) {
        if let Some(last) = self.last.as_mut().filter(|last| reading.now >= last.view.reading.now) {
            let had_room = reading.verdict == Verdict::Allow;
            let view = LastReading { reading, at: now };
            *last = LastAnswer { view, least: cost, had_room, ..*last };
        }
    }

    /// Returns units that a request took and does not use to their lease. `false` if it has ended.
    pub(super) fn give_back(&mut self, cost: u64, granted_at: Timestamp, now: Timestamp) -> bool {
        let is_back = self.held.give_back(cost, UnitOrigin::own(granted_at), now);
        if is_back {
            self.demand.forget(cost, now);
        }
        is_back
    }

    /// Whether units taken from this lease may still be spent.
    pub(super) fn is_live(&self, granted_at: Timestamp, now: Timestamp) -> bool {
        self.bug.has(SeededBug::StaleVerdict) || self.held.is_live(UnitOrigin::own(granted_at), now)
    }

    /// Ends expired leases, and gives up the others once there are no more requests. Returns
    /// whether the counter is still in use.
    pub(super) fn sweep(&mut self, now: Timestamp) -> bool {
        self.drop_ended(now);
        // As long as there are requests, they may use the units. Returning units loses some.
        if self.question.is_none() && self.demand.recent_requests(now) == 0 {
            self.retire(now);
        }
        self.question.is_some() || !self.held.is_empty() || !self.is_cold(now)
    }

    /// Gives up all leases.
    pub(super) fn retire(&mut self, now: Timestamp) {
        let (policy, store_now) = (&self.policy, store_now(&self.last, now));
        self.held.end_all(|unspent| unspent.is_worth_returning(policy, store_now));
    }

    /// The units to return to the store.
    pub(super) fn take_unspent(&mut self) -> SmallVec<[UnspentUnits; 1]> {
        self.held.take_unspent()
    }

    /// The units that are lost, because they are not worth returning.
    pub(super) fn take_expired(&mut self) -> u64 {
        self.held.take_expired().iter().map(|expired| expired.units).sum()
    }

    /// The reading of a request that was admitted on a lease, or refused because the store is
    /// short. `remaining` is what the store had left in its last answer, plus what this node holds.
    pub(super) fn reading(&self, cost: u64, refused: bool, now: Timestamp) -> Reading {
        let limit = self.policy.limit();
        let Some(last) = &self.last else { return Reading { limit, ..Reading::default() } };
        let passed = now.since(last.view.at);
        let less = |span: Micros| Micros::new(span.get().saturating_sub(passed.get()));
        let remaining = last.view.reading.remaining.saturating_add(self.units_left()).min(limit);
        let reading = Reading {
            limit,
            remaining,
            reset_after: less(last.view.reading.reset_after),
            now: last.view.store_now(now),
            ..Reading::default()
        };
        if !refused {
            return reading;
        }
        let next_question = self.pause.map_or(now, |pause| pause.until).since(now);
        let wait = next_question.max(less(last.wait_for(&self.policy, cost))).max(Micros::new(1));
        Reading { verdict: Verdict::Deny, retry: Retry::After(wait), ..reading }
    }

    /// Asks before the units are used up: when a quarter is left, or when the lease is about to
    /// end. A lease that ends with its window cannot be renewed before that, and one of few units is
    /// not.
    fn should_renew(&mut self, now: Timestamp) -> bool {
        if self.question.is_some() || now < self.direct_until || self.is_paused(1, now) {
            return false;
        }
        let granted = self.last.map_or(0, |last| last.granted);
        let soon = now.plus(Micros::new(self.ttl.get() / 8));
        let renewable = self.policy.algorithm() != Algorithm::FixedWindow;
        let ends_soon = renewable && self.held.all_end_by(soon);
        granted >= RENEWED_UNITS && (self.units_left() * 4 <= granted || ends_soon)
    }

    fn ask(&mut self, least: u64, nodes: u32, now: Timestamp) {
        let wanted =
            self.demand.wanted_units(self.pause.is_some(), now).max(least).min(self.policy.limit());
        let nodes = u64::from(nodes.max(1));
        // What is left at the end of a bucket's lease has drained, so it is lost.
        let spares_few = self.pause.is_some() && self.policy.algorithm().is_bucket();
        let most = match spares_few && wanted <= FEW_UNITS {
            true => wanted.saturating_sub(2).max(least),
            false => wanted,
        };
        self.questions += 1;
        self.question = Some(Question {
            number: self.questions,
            asked_at: now,
            least,
            terms: GrantTerms {
                most: u32::try_from(most).unwrap_or(u32::MAX),
                leave: 0,
                part: self.part(nodes, now),
            },
            wanted,
            nodes,
        });
    }

    /// How long a node waits between questions while the store is short: half a lease, but no
    /// longer than half of what fills the bucket, because a full one refills nothing.
    fn pace(&self) -> Micros {
        let span = self.ttl.get().min(self.policy.period().get()) / 2;
        Micros::new(span.max(1))
    }

    /// At most one in this many units of the store's room is asked for.
    fn part(&self, nodes: u64, now: Timestamp) -> u64 {
        match &self.last {
            // Room of a log that no node takes at once is lost.
            Some(_) if self.pause.is_some() && *self.policy.meter() == Meter::Log => 1,
            Some(last) => last.view.part(&self.policy, 0, self.pace(), nodes, now),
            None => most_parts(nodes),
        }
    }

    fn drop_ended(&mut self, now: Timestamp) {
        if self.bug.has(SeededBug::ExpiredLeaseSpent) && self.held.count() == 1 {
            return;
        }
        let (policy, last) = (&self.policy, &self.last);
        self.held
            .end_expired(now, |unspent| unspent.is_worth_returning(policy, store_now(last, now)));
    }

    fn is_paused(&self, cost: u64, now: Timestamp) -> bool {
        self.pause.is_some_and(|pause| now < pause.until && cost >= pause.min_cost)
    }

    /// Whether there are too few requests for a lease to save calls.
    fn is_cold(&mut self, now: Timestamp) -> bool {
        self.demand.recent_requests(now) < WARM_REQUESTS
    }
}

/// The store's clock, estimated from its last answer.
fn store_now(last: &Option<LastAnswer>, now: Timestamp) -> Timestamp {
    last.map_or(Timestamp::EPOCH, |last| last.view.store_now(now))
}

impl LastAnswer {
    /// How long after the answer a request with this cost passes at the store, if nothing else is
    /// charged.
    fn wait_for(&self, policy: &Policy, cost: u64) -> Micros {
        let reading = &self.view.reading;
        match reading.retry {
            Retry::After(wait) if cost <= self.least => wait,
            _ if self.had_room => wait_until_fits(reading, policy, cost, CounterDebt::None),
            _ => wait_until_fits(reading, policy, cost, CounterDebt::Possible),
        }
    }
}

#[cfg(test)]
mod tests;
