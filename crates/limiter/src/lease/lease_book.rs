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

use super::counter_lease::{CounterLease, HOT_REQUESTS, Question, Take, UnspentUnits};
use super::counter_shards::CounterShards;
use super::hot_counters::HotCounters;
use super::seeded_bug::BugSwitch;
use super::task_queue::{LeaseTask, LeaseTaskKind, TaskQueue};
use super::{LeaseClock, LeaseStats};

/// The leases of this node.
#[derive(Debug)]
pub(crate) struct LeaseBook {
    clock: LeaseClock,
    shards: CounterShards<LeasedCounter>,
    max_counters_per_shard: usize,
    hot: HotCounters,
    pub(super) tasks: Arc<TaskQueue>,
    stats: LeaseCounters,
    /// The number of counters created so far.
    counters: AtomicU64,
    pub(crate) bug: BugSwitch,
}

/// A counter with the rule that it belongs to.
#[derive(Debug)]
struct LeasedCounter {
    lease: CounterLease,
    rules: Arc<RuleSet>,
    rule: u32,
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
    /// Units were spent that the store granted at this instant.
    Spent { granted_at: Timestamp, reading: Reading },
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
            max_counters_per_shard: CounterShards::<LeasedCounter>::max_per_shard(max_bytes),
            hot: HotCounters::new(),
            tasks,
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
        let counter = match shard.get_mut(&key) {
            Some(counter) => counter,
            None => {
                let requests = self.hot.count(key, request.ttl, now);
                if requests < HOT_REQUESTS || shard.len() >= self.max_counters_per_shard {
                    return TakeOutcome::Direct;
                }
                // The request itself is recorded below.
                let counter = self.new_counter(&request, requests - 1, now);
                shard.entry(key).or_insert(counter)
            }
        };
        self.follow_rules(counter, &request, now);
        let asked_before = counter.lease.question().map(|question| question.number);
        let take = match first {
            true => counter.lease.take(cost, request.nodes, now),
            false => counter.lease.try_take(cost, request.nodes, now),
        };
        let outcome = match take {
            Take::Spent(granted_at) => {
                self.stats.spent.fetch_add(cost, Relaxed);
                TakeOutcome::Spent { granted_at, reading: counter.lease.reading(cost, false, now) }
            }
            Take::Refused => {
                self.stats.refused.fetch_add(1, Relaxed);
                TakeOutcome::Refused(counter.lease.reading(cost, true, now))
            }
            Take::Wait(question) => TakeOutcome::Wait { question },
            Take::Direct => TakeOutcome::Direct,
        };
        let asked =
            counter.lease.question().filter(|now| Some(now.number) != asked_before).copied();
        self.enqueue(key, counter, asked);
        outcome
    }

    /// Returns units that a request took and does not use to their lease. `false` if it has ended.
    pub(crate) fn give_back(&self, key: Fingerprint, cost: u64, granted_at: Timestamp) -> bool {
        let now = self.clock.now();
        let mut shard = self.shards.lock(key);
        let counter = shard.get_mut(&key);
        let back = counter.is_some_and(|counter| counter.lease.give_back(cost, granted_at, now));
        if back {
            self.stats.spent.fetch_sub(cost, Relaxed);
        }
        back
    }

    /// Counts units that a request took and does not use, because their lease has ended.
    pub(crate) fn count_expired(&self, cost: u64) {
        self.stats.spent.fetch_sub(cost, Relaxed);
        self.stats.expired.fetch_add(cost, Relaxed);
    }

    /// Whether units taken from this lease may still be spent.
    pub(crate) fn is_live(&self, key: Fingerprint, granted_at: Timestamp) -> bool {
        let now = self.clock.now();
        let shard = self.shards.lock(key);
        shard.get(&key).is_some_and(|counter| counter.lease.is_live(granted_at, now))
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
            counter.lease.units_left()
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
        for mut shard in self.shards.iter() {
            shard.retain(|key, counter| {
                let stays = counter.lease.sweep(now);
                self.enqueue(*key, counter, None);
                stays
            });
        }
    }

    /// Gives up the leases of all counters that `keep` rejects. It receives the rule set and the
    /// rule that a counter belongs to.
    pub(crate) fn retire(&self, keep: impl Fn(&Arc<RuleSet>, u32) -> bool) {
        let now = self.clock.now();
        for mut shard in self.shards.iter() {
            for (key, counter) in shard.iter_mut() {
                if !keep(&counter.rules, counter.rule) {
                    counter.lease.retire(now);
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
        if let Some(counter) = shard.remove(&key) {
            drop(shard);
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
                visit(&counter.rules[counter.rule], counter.lease.units_left());
            }
        }
    }

    /// The units that this node holds of a counter.
    pub(crate) fn units_held(&self, key: Fingerprint) -> u64 {
        self.shards.lock(key).get(&key).map_or(0, |counter| counter.lease.units_left())
    }

    fn new_counter(&self, request: &LeaseRequest<'_>, seen: u32, now: Timestamp) -> LeasedCounter {
        let policy = *request.charge.policy;
        // Leaves room for more questions than one counter can ask.
        let first_question = self.counters.fetch_add(1, Relaxed) << 32;
        LeasedCounter {
            lease: CounterLease::new(policy, request.ttl, self.bug, seen, first_question, now),
            rules: Arc::clone(request.rules),
            rule: request.rule,
            waiting: Vec::new(),
        }
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
        let same =
            counter.lease.policy() == request.charge.policy && counter.lease.ttl() == request.ttl;
        if !same {
            counter.lease.retire(now);
            self.enqueue(request.charge.key.fingerprint, counter, None);
            let waiting = std::mem::take(&mut counter.waiting);
            *counter = self.new_counter(request, HOT_REQUESTS - 1, now);
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
        for UnspentUnits { units, granted_at } in counter.lease.take_unspent() {
            self.stats.returned.fetch_add(units, Relaxed);
            self.push_task(key, counter, LeaseTaskKind::Return { units, granted_at });
        }
        self.stats.expired.fetch_add(counter.lease.take_expired(), Relaxed);
    }

    fn push_task(&self, key: Fingerprint, counter: &LeasedCounter, kind: LeaseTaskKind) {
        let (rules, policy) = (Arc::clone(&counter.rules), *counter.lease.policy());
        self.tasks.push_lease(LeaseTask { rules, rule: counter.rule, key, policy, kind });
    }
}
