//! All counters that this node leases, in bounded memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::Charge;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Rule, RuleSet};

use super::borrow_book::lends_alike;
use super::counter_borrow::CounterBorrow;
use super::counter_lease::{CounterLease, HOT_REQUESTS, Question, Take, WARM_REQUESTS};
use super::counter_shards::{CounterShard, CounterShards};
use super::held_leases::{UnitOrigin, UnspentUnits};
use super::hot_counters::HotCounters;
use super::lenders::Lenders;
use super::memory_budget::{MemoryBudget, ReservedBytes};
use super::seeded_bug::BugSwitch;
use super::task_queue::{LeaseTask, LeaseTaskKind, TaskQueue};
use super::{LeaseClock, LeaseStats};

/// The leases of this node.
#[derive(Debug)]
pub(crate) struct LeaseBook {
    pub(super) clock: LeaseClock,
    pub(super) shards: CounterShards<LeasedCounter>,
    memory: Arc<MemoryBudget>,
    hot: HotCounters,
    /// The refusals of counters with too few requests for a lease, if there are lenders. Apart
    /// from `hot`, because counts over different times in one cell reset each other.
    refusals: Option<HotCounters>,
    pub(super) tasks: Arc<TaskQueue>,
    pub(super) lenders: Lenders,
    stats: LeaseCounters,
    /// The number of counters created so far.
    counters: AtomicU64,
    pub(crate) bug: BugSwitch,
}

/// A counter with the rule that it belongs to.
#[derive(Debug)]
pub(super) struct LeasedCounter {
    pub(super) lease: CounterLease,
    /// What the node borrows of it, since the own share did not admit a request.
    pub(super) borrow: Option<Box<CounterBorrow>>,
    pub(super) memory: ReservedBytes,
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: u32,
    /// Requests that wait for an answer.
    waiting: Vec<Waker>,
}

/// Counts since the start.
#[derive(Debug, Default)]
struct LeaseCounters {
    spent: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
    expired: AtomicU64,
    questions: AtomicU64,
    refused: AtomicU64,
}

/// The rule and counter that units are taken for.
#[derive(Clone, Copy)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) charge: &'a Charge<'a>,
    pub(crate) rules: &'a Arc<RuleSet>,
    pub(crate) rule: u32,
    pub(crate) ttl: Micros,
    pub(crate) nodes: u32,
}

/// The outcome of a request for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOutcome {
    /// Units of this lease were spent.
    Spent { origin: UnitOrigin, reading: Reading },
    /// The store is short.
    Refused(Reading),
    /// The answer to this question decides.
    Wait { question: u64 },
    /// The request is charged at the store.
    Direct,
}

impl LeaseBook {
    /// Bytes of one counter, estimated.
    pub(crate) const COUNTER_BYTES: usize = CounterShards::<LeasedCounter>::ENTRY_BYTES;

    pub(crate) fn new(clock: LeaseClock, max_bytes: usize, tasks: Arc<TaskQueue>) -> Self {
        Self {
            clock,
            shards: CounterShards::new(),
            memory: MemoryBudget::new(max_bytes),
            hot: HotCounters::new(),
            refusals: None,
            tasks,
            lenders: Lenders::default(),
            stats: LeaseCounters::default(),
            counters: AtomicU64::new(0),
            bug: BugSwitch::default(),
        }
    }

    /// Takes units for a charge. `first` is false for a request that has waited for an answer.
    pub(crate) fn take(&self, request: LeaseRequest<'_>, first: bool) -> TakeOutcome {
        let now = self.clock.now();
        let (key, cost) = (request.charge.key.fingerprint, request.charge.cost);
        let mut shard = self.shards.lock(key);
        let is_hot = || {
            let requests = self.hot.count(key, request.ttl, now);
            // The request itself is recorded below.
            (requests >= HOT_REQUESTS).then(|| requests - 1)
        };
        let Some(counter) = self.counter(&mut shard, &request, is_hot, now) else {
            return TakeOutcome::Direct;
        };
        let asked_before = counter.lease.question().map(|question| question.number);
        let take = match first {
            true => counter.lease.take(cost, request.nodes, now),
            false => counter.lease.try_take(cost, request.nodes, now),
        };
        let outcome = match take {
            Take::Spent(granted_at) => {
                self.stats.spent.fetch_add(cost, Relaxed);
                let reading = counter.reading(cost, false, now);
                TakeOutcome::Spent { origin: UnitOrigin::own(granted_at), reading }
            }
            Take::Refused => match self.borrow(key, counter, cost, request.nodes, now) {
                Some(origin) => {
                    TakeOutcome::Spent { origin, reading: counter.reading(cost, false, now) }
                }
                None => {
                    self.stats.refused.fetch_add(1, Relaxed);
                    TakeOutcome::Refused(counter.reading(cost, true, now))
                }
            },
            Take::Wait(question) => TakeOutcome::Wait { question },
            Take::Direct => TakeOutcome::Direct,
        };
        let asked =
            counter.lease.question().filter(|now| Some(now.number) != asked_before).copied();
        self.enqueue(key, counter, asked);
        outcome
    }

    /// Returns units that a request took and does not use to their lease. `false` if it has ended.
    pub(crate) fn give_back(&self, key: Fingerprint, cost: u64, origin: UnitOrigin) -> bool {
        let now = self.clock.now();
        let mut shard = self.shards.lock(key);
        let Some(counter) = shard.get_mut(&key) else { return false };
        if origin.lender.is_some() {
            let borrow = counter.borrow.as_mut();
            return borrow.is_some_and(|borrow| borrow.give_back(cost, origin, now));
        }
        let back = counter.lease.give_back(cost, origin.granted_at, now);
        if back {
            self.stats.spent.fetch_sub(cost, Relaxed);
        }
        back
    }

    /// Counts units that a request took and does not use, because their lease has ended.
    pub(crate) fn count_expired(&self, key: Fingerprint, cost: u64, origin: UnitOrigin) {
        if let Some(lender) = origin.lender {
            let mut shard = self.shards.lock(key);
            let borrow = shard.get_mut(&key).and_then(|counter| counter.borrow.as_mut());
            return borrow.into_iter().for_each(|borrow| borrow.count_expired(cost, lender));
        }
        self.stats.spent.fetch_sub(cost, Relaxed);
        self.stats.expired.fetch_add(cost, Relaxed);
    }

    /// Whether units taken from this lease may still be spent.
    pub(crate) fn is_live(&self, key: Fingerprint, origin: UnitOrigin) -> bool {
        let now = self.clock.now();
        let shard = self.shards.lock(key);
        shard.get(&key).is_some_and(|counter| match origin.lender {
            None => counter.lease.is_live(origin.granted_at, now),
            Some(_) => counter.borrow.as_ref().is_some_and(|it| it.is_live(origin, now)),
        })
    }

    /// Processes the store's answer to a question, and wakes the requests that wait for it.
    pub(super) fn on_answer(&self, key: Fingerprint, question: u64, answer: Option<Reading>) {
        let now = self.clock.now();
        let granted = answer.map_or(0, |reading| reading.granted.into());
        self.stats.granted.fetch_add(granted, Relaxed);
        let mut shard = self.shards.lock(key);
        let counter = shard.get_mut(&key);
        let asked = |counter: &LeasedCounter| {
            counter.lease.question().is_some_and(|asked| asked.number == question)
        };
        let Some(counter) = counter.filter(|counter| asked(counter)) else {
            // The counter was reset, or its rule changed. No request spends these units.
            self.stats.expired.fetch_add(granted, Relaxed);
            return;
        };
        counter.lease.on_answer(question, answer, now);
        answer.iter().for_each(|reading| self.lenders.set_own_clock(reading, now));
        let waiting = std::mem::take(&mut counter.waiting);
        self.enqueue(key, counter, None);
        drop(shard);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Processes the store's answer to a request that it decided. Returns the units that this node
    /// holds of the counter.
    pub(crate) fn on_direct_answer(&self, charge: &Charge<'_>, reading: Reading) -> u64 {
        let now = self.clock.now();
        let key = charge.key.fingerprint;
        self.shards.lock(key).get_mut(&key).map_or(0, |counter| {
            counter.lease.on_direct_answer(charge.cost, reading, now);
            counter.units_left()
        })
    }

    /// Completes when the question has been answered.
    pub(crate) async fn answered(&self, key: Fingerprint, question: u64) {
        poll_fn(|context| {
            let mut shard = self.shards.lock(key);
            let Some(counter) = shard.get_mut(&key) else { return Poll::Ready(()) };
            let asked = counter.lease.question();
            if asked.is_none_or(|asked| asked.number != question) {
                return Poll::Ready(());
            }
            counter.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends expired leases, and forgets counters that get no more requests.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        self.shards.sweep(now, |key, counter| {
            let borrows = counter.borrow.as_mut().is_some_and(|borrow| borrow.sweep(now));
            let stays = counter.lease.sweep(now) || borrows;
            self.enqueue(*key, counter, None);
            if !stays {
                self.collect_totals(counter);
            }
            stays.then(|| counter.period())
        });
    }

    /// Gives up the leases of all counters that `keep` rejects. It receives the rule set and the
    /// rule that a counter belongs to.
    pub(crate) fn retire(&self, keep: impl Fn(&Arc<RuleSet>, u32) -> bool) {
        let now = self.clock.now();
        for mut shard in self.shards.iter() {
            for (key, counter) in shard.iter_mut() {
                if !keep(&counter.rules, counter.rule) {
                    counter.lease.retire(now);
                    counter.borrow.iter_mut().for_each(|borrow| borrow.retire(now));
                    self.enqueue(*key, counter, None);
                    #[cfg(feature = "seeded-bugs")]
                    if self.bug.has(super::SeededBug::EditResetsUsage) {
                        self.push_task(*key, counter, LeaseTaskKind::Reset);
                    }
                }
            }
        }
    }

    pub(crate) fn forget(&self, key: Fingerprint) {
        let mut shard = self.shards.lock(key);
        if let Some(mut counter) = shard.remove(&key) {
            drop(shard);
            self.collect_totals(&mut counter);
            self.stats.expired.fetch_add(counter.lease.units_left(), Relaxed);
            counter.waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let (mut counters, mut held) = (0, 0);
        for shard in self.shards.iter() {
            counters += shard.len();
            held += shard.values().map(|counter| counter.lease.units_left()).sum::<u64>();
        }
        let LeaseCounters { spent, granted, returned, expired, questions, refused } = &self.stats;
        LeaseStats {
            counters,
            units_held: held,
            units_granted: granted.load(Relaxed),
            units_spent: spent.load(Relaxed),
            units_returned: returned.load(Relaxed),
            units_expired: expired.load(Relaxed),
            questions: questions.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }

    /// Charges a counter in the background; no request waits for it.
    pub(super) fn charge_later(&self, charge: &Charge<'_>, rules: &Arc<RuleSet>, rule: u32) {
        self.tasks.push_lease(LeaseTask {
            rules: Arc::clone(rules),
            rule,
            key: charge.key.fingerprint,
            policy: *charge.policy,
            kind: LeaseTaskKind::Charge { cost: charge.cost },
        });
    }

    /// Calls `visit` with the rule of each counter and the units held of it.
    pub(crate) fn for_each_counter(&self, mut visit: impl FnMut(&Rule, u64)) {
        for shard in self.shards.iter() {
            for counter in shard.values() {
                visit(&counter.rules[counter.rule], counter.units_left());
            }
        }
    }

    /// The units that this node holds of a counter.
    pub(crate) fn units_held(&self, key: Fingerprint) -> u64 {
        self.shards.lock(key).get(&key).map_or(0, LeasedCounter::units_left)
    }

    /// Allows borrowing from these regions.
    pub(crate) fn set_lenders(&mut self, lenders: Lenders) {
        self.lenders = lenders;
        self.refusals = Some(HotCounters::new());
    }

    /// The counter of a request under the request's rules. For a new one, `seen` returns the
    /// requests so far, or `None` if they are too few. `None` also if there is no memory for it.
    pub(super) fn counter<'s>(
        &self,
        shard: &'s mut CounterShard<LeasedCounter>,
        request: &LeaseRequest<'_>,
        seen: impl FnOnce() -> Option<u32>,
        now: Timestamp,
    ) -> Option<&'s mut LeasedCounter> {
        let key = request.charge.key.fingerprint;
        let counter = shard.get_or_try_insert_with(key, now, || {
            let seen = seen()?;
            let counter = LeasedCounter {
                memory: self.memory.reserve(Self::COUNTER_BYTES)?,
                lease: self.new_lease(request, seen, now),
                borrow: None,
                rules: Arc::clone(request.rules),
                rule: request.rule,
                waiting: Vec::new(),
            };
            Some((counter.period(), counter))
        })?;
        self.follow_rules(counter, request, now);
        Some(counter)
    }

    /// Whether the store refuses requests of a counter so often that borrowed units would be spent.
    pub(super) fn is_often_refused(&self, key: Fingerprint, ttl: Micros, now: Timestamp) -> bool {
        let refusals = self.refusals.as_ref();
        refusals.is_some_and(|refusals| refusals.count(key, ttl, now) >= WARM_REQUESTS)
    }

    fn new_lease(&self, request: &LeaseRequest<'_>, seen: u32, now: Timestamp) -> CounterLease {
        let (policy, first_question) = (*request.charge.policy, self.first_question());
        CounterLease::new(policy, request.ttl, self.bug, seen, first_question, now)
    }

    /// Where a counter starts to number its questions. Leaves room for more questions than one
    /// counter can ask.
    pub(super) fn first_question(&self) -> u64 {
        self.counters.fetch_add(1, Relaxed) << 32
    }

    /// Starts again under the request's rules if they changed the counter's policy.
    fn follow_rules(
        &self,
        counter: &mut LeasedCounter,
        request: &LeaseRequest<'_>,
        now: Timestamp,
    ) {
        if Arc::ptr_eq(&counter.rules, request.rules) && counter.rule == request.rule {
            return;
        }
        let (before, after) = (&counter.rules[counter.rule], &request.rules[request.rule]);
        let same = counter.lease.policy() == request.charge.policy
            && counter.lease.ttl() == request.ttl
            && lends_alike(before, after);
        if !same {
            counter.lease.retire(now);
            counter.borrow.iter_mut().for_each(|borrow| borrow.retire(now));
            self.enqueue(request.charge.key.fingerprint, counter, None);
            self.collect_totals(counter);
            let waiting = std::mem::take(&mut counter.waiting);
            counter.lease = self.new_lease(request, HOT_REQUESTS - 1, now);
            counter.borrow = None;
            counter.memory.resize(Self::COUNTER_BYTES);
            waiting.into_iter().for_each(Waker::wake);
        }
        (counter.rules, counter.rule) = (Arc::clone(request.rules), request.rule);
    }

    /// Queues a counter's calls to the store.
    fn enqueue(&self, key: Fingerprint, counter: &mut LeasedCounter, asked: Option<Question>) {
        if let Some(Question { number, least, terms, .. }) = asked {
            self.stats.questions.fetch_add(1, Relaxed);
            self.push_task(key, counter, LeaseTaskKind::Ask { question: number, least, terms });
        }
        for UnspentUnits { units, origin } in counter.lease.take_unspent() {
            self.stats.returned.fetch_add(units, Relaxed);
            let granted_at = origin.granted_at;
            self.push_task(key, counter, LeaseTaskKind::Return { units, granted_at });
        }
        self.stats.expired.fetch_add(counter.lease.take_expired(), Relaxed);
        self.enqueue_borrowed(key, counter);
    }

    fn push_task(&self, key: Fingerprint, counter: &LeasedCounter, kind: LeaseTaskKind) {
        let (rules, policy) = (Arc::clone(&counter.rules), *counter.lease.policy());
        self.tasks.push_lease(LeaseTask { rules, rule: counter.rule, key, policy, kind });
    }
}

impl LeasedCounter {
    /// The shortest of its leases.
    fn period(&self) -> Micros {
        let ttl = self.lease.ttl();
        self.borrow.as_ref().map_or(ttl, |borrow| ttl.min(borrow.ttl()))
    }

    /// The units that the node holds, also of other regions' shares.
    fn units_left(&self) -> u64 {
        self.lease.units_left().saturating_add(self.borrowed_units())
    }

    /// The units that the node holds of other regions' shares.
    pub(super) fn borrowed_units(&self) -> u64 {
        self.borrow.as_ref().map_or(0, |borrow| borrow.units_left())
    }

    /// The reading of a request that the node decided, with what it has borrowed.
    fn reading(&self, cost: u64, refused: bool, now: Timestamp) -> Reading {
        let reading = self.lease.reading(cost, refused, now);
        let remaining = reading.remaining.saturating_add(self.borrowed_units());
        Reading { remaining: remaining.min(reading.limit), ..reading }
    }
}
