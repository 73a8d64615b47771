//! The units of one counter that a node borrows from other regions: a state machine without clock,
//! lock or I/O.
//!
//! The node borrows for requests that the share of this region does not admit, and spends borrowed
//! units on no others. It asks in rounds, one region after the other until their expected
//! grants cover the need, the region with the most left first. A grant is a lease like those of the
//! node's own store, and ends `ttl` after it was *asked* for.

use std::cmp::Reverse;

use smallvec::SmallVec;
use tidegate_core::decision::Reading;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::GrantTerms;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{BorrowTerms, RegionLender};

use super::borrow_stats::BorrowedUnits;
use super::demand::DemandMeter;
use super::held_leases::{HeldLeases, UnitOrigin, UnspentUnits};
use super::last_reading::{LastReading, most_parts};
use super::lenders::LenderId;
use super::seeded_bug::{BugSwitch, SeededBug};

/// What a node borrows of one counter.
#[derive(Debug)]
pub(super) struct CounterBorrow {
    terms: BorrowTerms,
    bug: BugSwitch,
    lenders: Box<[CounterLender]>,
    held: HeldLeases,
    /// The demand that the share of the own region does not meet.
    excess: DemandMeter,
    last_excess: Timestamp,
    next_round: Timestamp,
    /// The number of the last question; no two counters use the same numbers.
    questions: u64,
    refused_with_room: u64,
}

/// A region that lends units of the counter.
#[derive(Debug)]
pub(super) struct CounterLender {
    id: LenderId,
    policy: Policy,
    kept: u64,
    pending: Option<PendingGrant>,
    last: Option<LastReading>,
    /// When it was last asked.
    asked_at: Timestamp,
    /// The units of a window that last went back to it, and when.
    returned: u64,
    returned_at: Timestamp,
    /// Until when it is not asked, because it had nothing to lend or did not answer.
    pause_until: Timestamp,
    units: BorrowedUnits,
}

/// A grant that was planned or asked for.
#[derive(Clone, Copy, Debug)]
struct PendingGrant {
    /// When it was planned, or asked for.
    since: Timestamp,
    /// The number of the question; `None` until it is asked.
    question: Option<u64>,
    terms: GrantTerms,
    expected: u64,
}

impl CounterBorrow {
    pub(super) fn new<'a>(
        terms: BorrowTerms,
        lenders: impl Iterator<Item = (LenderId, &'a RegionLender)>,
        bug: BugSwitch,
        first_question: u64,
        now: Timestamp,
    ) -> Self {
        let lender = |(id, lender): (LenderId, &RegionLender)| CounterLender {
            id,
            policy: *lender.policy(),
            kept: lender.kept_units(),
            pending: None,
            last: None,
            asked_at: Timestamp::EPOCH,
            returned: 0,
            returned_at: Timestamp::EPOCH,
            pause_until: Timestamp::EPOCH,
            units: BorrowedUnits::default(),
        };
        let slot = Micros::new(terms.ttl.get() / 2 + terms.every.get());
        Self {
            terms,
            bug,
            lenders: lenders.map(lender).collect(),
            held: HeldLeases::default(),
            excess: DemandMeter::new(slot, now),
            last_excess: Timestamp::EPOCH,
            next_round: Timestamp::EPOCH,
            questions: first_question,
            refused_with_room: 0,
        }
    }

    /// Bytes that it takes with this many lenders.
    pub(super) const fn bytes(lenders: usize) -> usize {
        size_of::<Self>() + lenders * size_of::<CounterLender>()
    }

    pub(super) const fn ttl(&self) -> Micros {
        self.terms.ttl
    }

    /// The units that the node holds.
    pub(super) fn units_left(&self) -> u64 {
        self.held.units()
    }

    /// Takes units for a request that the own region's share does not admit.
    pub(super) fn take(&mut self, cost: u64, now: Timestamp) -> Option<UnitOrigin> {
        self.excess.record(1, cost, now);
        self.last_excess = now;
        self.end_expired(now);
        let origin = self.held.spend(cost);
        if origin.is_none() && self.lenders.iter().any(CounterLender::had_room) {
            self.refused_with_room += 1;
        }
        origin
    }

    /// Plans what to borrow, at most once per round. Returns the regions to ask.
    pub(super) fn plan_round(
        &mut self,
        nodes: u32,
        is_usable: impl Fn(LenderId) -> bool,
        now: Timestamp,
    ) -> SmallVec<[LenderId; 4]> {
        let mut asked = SmallVec::new();
        if now < self.next_round {
            return asked;
        }
        self.next_round = now.plus(self.terms.every);
        let ttl = self.terms.ttl;
        self.lenders.iter_mut().for_each(|lender| lender.drop_lapsed(ttl, now));
        let mut need = self.need(now);
        let mut idle: SmallVec<[&mut CounterLender; 4]> = self
            .lenders
            .iter_mut()
            .filter(|lender| lender.may_be_asked(now) && is_usable(lender.id))
            .collect();
        idle.sort_by_key(|lender| Reverse(lender.room(now)));
        for lender in idle {
            if need == 0 {
                break;
            }
            need = need.saturating_sub(lender.plan(need, nodes, &self.terms, now));
            asked.push(lender.id);
        }
        asked
    }

    /// Forgets a planned grant that the region is not asked for.
    pub(super) fn cancel_plan(&mut self, lender: LenderId) {
        if let Some(lender) = self.lender_mut(lender) {
            lender.take_plan();
        }
    }

    /// The question to a region, if the round has planned one. It asks for what is needed by now.
    pub(super) fn ask(
        &mut self,
        lender: LenderId,
        nodes: u32,
        now: Timestamp,
    ) -> Option<(u64, GrantTerms, Policy)> {
        let terms = self.terms;
        self.lender_mut(lender)?.take_plan()?;
        let need = self.need(now);
        if need == 0 || self.is_idle(now) {
            return None;
        }
        self.questions += 1;
        let number = self.questions;
        let lender = self.lender_mut(lender)?;
        lender.plan(need, nodes, &terms, now);
        lender.asked_at = now;
        let pending = lender.pending.as_mut()?;
        pending.question = Some(number);
        Some((number, pending.terms, lender.policy))
    }

    /// Processes a region's answer; `None` if its store did not answer. The grant may then have
    /// been made, and its units are lost.
    pub(super) fn on_answer(
        &mut self,
        lender: LenderId,
        question: u64,
        answer: Option<Reading>,
        now: Timestamp,
    ) {
        let ttl = self.terms.ttl;
        let from_answer = self.bug.has(SeededBug::ExpiryFromAnswer);
        let Some(lender) = self.lender_mut(lender) else { return };
        let granted = answer.map_or(0, |reading| u64::from(reading.granted));
        lender.units.granted += granted;
        let Some(asked) = lender.pending.take_if(|it| it.question == Some(question)) else {
            // The question has lapsed.
            lender.units.expired += granted;
            return;
        };
        let half = Micros::new(ttl.get() / 2);
        let pause_until = asked.since.plus(half);
        let Some(reading) = answer else {
            lender.pause_until = pause_until;
            return;
        };
        let mut last = LastReading { reading, at: now };
        // The store may have processed the question before what went back to it.
        if lender.returned_at.plus(half) >= asked.since {
            last.reading.remaining = last.reading.remaining.saturating_add(lender.returned);
        }
        lender.last = Some(last);
        if granted == 0 {
            lender.pause_until = match lender.policy.algorithm() {
                Algorithm::FixedWindow => pause_until.min(now.plus(reading.next_after)),
                _ => pause_until,
            };
        }
        let from = if from_answer { now } else { asked.since };
        let ends_at = from.plus(lender.policy.lease_span(ttl, reading.now));
        let origin = UnitOrigin { granted_at: reading.now, lender: Some(lender.id) };
        self.held.add(granted, origin, ends_at);
        self.end_expired(now);
    }

    /// Returns units that a request took and does not use to their lease. `false` if it has ended.
    pub(super) fn give_back(&mut self, cost: u64, origin: UnitOrigin, now: Timestamp) -> bool {
        let is_back = self.held.give_back(cost, origin, now);
        if is_back {
            self.excess.forget(cost, now);
        }
        is_back
    }

    /// Whether units taken of this lease may still be spent.
    pub(super) fn is_live(&self, origin: UnitOrigin, now: Timestamp) -> bool {
        self.held.is_live(origin, now)
    }

    /// Counts units that are lost, because their lease has ended or their region gets none back.
    pub(super) fn count_expired(&mut self, units: u64, lender: LenderId) {
        if let Some(lender) = self.lender_mut(lender) {
            lender.units.expired += units;
        }
    }

    /// Counts units that are on their way back to their region.
    pub(super) fn count_returned(&mut self, units: u64, lender: LenderId, now: Timestamp) {
        if let Some(lender) = self.lender_mut(lender) {
            lender.count_returned(units, now);
        }
    }

    /// Ends expired leases, and gives up the others once the own share suffices. Returns whether
    /// the counter is still in use.
    pub(super) fn sweep(&mut self, now: Timestamp) -> bool {
        self.end_expired(now);
        if self.is_idle(now) {
            self.retire(now);
        }
        let ttl = self.terms.ttl;
        self.lenders.iter_mut().for_each(|lender| lender.drop_lapsed(ttl, now));
        !self.held.is_empty() || self.lenders.iter().any(|lender| lender.pending.is_some())
    }

    /// Gives up all leases, and does not ask what was only planned.
    pub(super) fn retire(&mut self, now: Timestamp) {
        let lenders = &self.lenders;
        self.held.end_all(|unspent| is_worth_returning(lenders, unspent, now));
        for lender in &mut self.lenders {
            lender.take_plan();
        }
    }

    /// The units to return, each with the policy by which their region counts. The caller counts
    /// them.
    pub(super) fn take_unspent(&mut self) -> SmallVec<[(LenderId, UnspentUnits, Policy); 1]> {
        for UnspentUnits { units, origin } in self.held.take_expired() {
            origin.lender.iter().for_each(|lender| self.count_expired(units, *lender));
        }
        let unspent = self.held.take_unspent().into_iter();
        let with_policy = unspent.filter_map(|unspent| {
            let lender = self.lender_mut(unspent.origin.lender?)?;
            Some((lender.id, unspent, lender.policy))
        });
        with_policy.collect()
    }

    /// Takes the requests refused although another region had room, and what each region lent,
    /// since the last call.
    pub(super) fn take_totals(&mut self) -> (u64, Vec<(LenderId, BorrowedUnits)>) {
        let take = |lender: &mut CounterLender| (lender.id, std::mem::take(&mut lender.units));
        let totals = self.lenders.iter_mut().map(take).collect();
        (std::mem::take(&mut self.refused_with_room), totals)
    }

    /// The units that the node holds of each region's share.
    pub(super) fn held_units(&self) -> impl Iterator<Item = (LenderId, u64)> {
        let held = |id| self.held.units_where(|origin| origin.lender == Some(id));
        self.lenders.iter().map(move |lender| (lender.id, held(lender.id)))
    }

    fn lender_mut(&mut self, id: LenderId) -> Option<&mut CounterLender> {
        self.lenders.iter_mut().find(|lender| lender.id == id)
    }

    /// The units that are needed and neither held nor expected.
    fn need(&mut self, now: Timestamp) -> u64 {
        let every = self.terms.every;
        let expected = self.lenders.iter().map(|lender| lender.expected_units(every, now));
        let covered = self.held.units().saturating_add(expected.sum());
        self.excess.wanted_units(true, now).saturating_sub(covered)
    }

    /// Whether the share of the own region has sufficed for a while.
    fn is_idle(&self, now: Timestamp) -> bool {
        let BorrowTerms { ttl, every, .. } = self.terms;
        now.since(self.last_excess).get() >= (2 * every.get()).min(ttl.get() / 2)
    }

    fn end_expired(&mut self, now: Timestamp) {
        if self.bug.has(SeededBug::ExpiredBorrowSpent) && self.held.count() == 1 {
            return;
        }
        let lenders = &self.lenders;
        self.held.end_expired(now, |unspent| is_worth_returning(lenders, unspent, now));
    }
}

fn is_worth_returning(lenders: &[CounterLender], unspent: &UnspentUnits, now: Timestamp) -> bool {
    let lender = lenders.iter().find(|lender| Some(lender.id) == unspent.origin.lender);
    lender.is_some_and(|CounterLender { policy, last, .. }| {
        last.is_some_and(|last| unspent.is_worth_returning(policy, last.store_now(now)))
    })
}

impl CounterLender {
    /// The units that it lends, as of its last answer; all that it ever lends if it has given none.
    fn room(&self, now: Timestamp) -> u64 {
        let left = self.last.map_or(self.policy.limit(), |it| it.remaining(&self.policy, now));
        left.saturating_sub(self.kept)
    }

    /// Whether its last answer showed units that it lends.
    fn had_room(&self) -> bool {
        self.last.is_some_and(|last| last.reading.remaining > self.kept)
    }

    fn may_be_asked(&self, now: Timestamp) -> bool {
        self.pending.is_none() && now >= self.pause_until && self.room(now) > 0
    }

    /// Plans a grant of at most `need` units. Returns how many are expected.
    fn plan(&mut self, need: u64, nodes: u32, terms: &BorrowTerms, now: Timestamp) -> u64 {
        let nodes = u64::from(nodes.max(1));
        // It was asked so long ago because of the round trip, or because many counters wait.
        let pace = now.since(self.asked_at).max(terms.every).min(terms.ttl);
        let part = self
            .last
            .map_or(most_parts(nodes), |last| last.part(&self.policy, self.kept, pace, nodes, now));
        let most = u32::try_from(need.min(self.policy.limit())).unwrap_or(u32::MAX);
        let terms = GrantTerms { most, leave: self.kept, part };
        let expected = u64::from(terms.units(1, self.room(now)));
        self.pending = Some(PendingGrant { since: now, question: None, terms, expected });
        expected
    }

    /// Counts units that go back. A window lends them again at once; those of a bucket have nearly
    /// drained.
    fn count_returned(&mut self, units: u64, now: Timestamp) {
        self.units.returned += units;
        if self.policy.algorithm().is_bucket() {
            return;
        }
        let earlier = if self.returned_at == now { self.returned } else { 0 };
        (self.returned, self.returned_at, self.pause_until) = (earlier + units, now, now);
        if let Some(last) = &mut self.last {
            last.reading.remaining = last.reading.remaining.saturating_add(units);
        }
    }

    /// Forgets a question that the store did not answer in time: its units would be void.
    fn drop_lapsed(&mut self, ttl: Micros, now: Timestamp) {
        self.pending.take_if(|it| it.question.is_some() && it.since.plus(ttl) <= now);
    }

    /// Takes the grant that is planned and not asked for yet.
    fn take_plan(&mut self) -> Option<PendingGrant> {
        self.pending.take_if(|pending| pending.question.is_none())
    }

    /// The units of the grant that was asked for, or will be with the next batch. A grant that has
    /// been planned for longer waits behind those of many other counters.
    fn expected_units(&self, every: Micros, now: Timestamp) -> u64 {
        let is_soon = |it: &PendingGrant| it.question.is_some() || now < it.since.plus(every);
        self.pending.filter(is_soon).map_or(0, |pending| pending.expected)
    }
}

#[cfg(test)]
mod tests;
