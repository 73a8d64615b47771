//! All asynchronous counters that this node has a view of, in bounded memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::Charge;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::{Rule, RuleSet};

use super::async_counter::{Admission, AsyncCounter, Flush, FlushOutcome};
use super::flush_batch::{CounterFlush, FlushBatch, MAX_BATCH};
use super::{AsyncStats, flush_interval};
use crate::lease::{
    BugSwitch, CounterShards, LeaseClock, LeaseTask, LeaseTaskKind, SeededBug, TaskQueue,
};

/// The asynchronous counters of this node.
#[derive(Debug)]
pub(crate) struct AsyncBook {
    clock: LeaseClock,
    shards: CounterShards<TrackedCounter>,
    max_counters_per_shard: usize,
    tasks: Arc<TaskQueue>,
    totals: Totals,
    pub(crate) bug: BugSwitch,
}

/// A counter with the rule that it belongs to.
#[derive(Debug)]
struct TrackedCounter {
    counter: AsyncCounter,
    rules: Arc<RuleSet>,
    rule: u32,
    /// Requests that wait for an answer.
    waiting: Vec<Waker>,
}

/// Counts since the start.
#[derive(Debug, Default)]
struct Totals {
    admitted: AtomicU64,
    refused: AtomicU64,
    calls: AtomicU64,
    flushes: AtomicU64,
    flushed: AtomicU64,
    lost: AtomicU64,
    overshot: AtomicU64,
}

/// The rule and counter of a request.
#[derive(Clone, Copy)]
pub(crate) struct AsyncRequest<'a> {
    pub(crate) charge: &'a Charge<'a>,
    pub(crate) rules: &'a Arc<RuleSet>,
    pub(crate) rule: u32,
    pub(crate) interval: Micros,
    pub(crate) nodes: u32,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmitOutcome {
    /// The node admitted it; this flush reports it.
    Admitted { flush: u64, reading: Reading },
    /// By the node's view, the limit is reached.
    Refused(Reading),
    /// The answer to this flush decides.
    Wait { flush: u64 },
    /// The request is charged at the store.
    Direct,
}

impl AsyncBook {
    /// Bytes of one counter, estimated.
    pub(crate) const COUNTER_BYTES: usize = CounterShards::<TrackedCounter>::ENTRY_BYTES;

    pub(crate) fn new(clock: LeaseClock, max_bytes: usize, tasks: Arc<TaskQueue>) -> Self {
        Self {
            clock,
            shards: CounterShards::new(),
            max_counters_per_shard: CounterShards::<TrackedCounter>::max_per_shard(max_bytes),
            tasks,
            totals: Totals::default(),
            bug: BugSwitch::default(),
        }
    }

    /// The time of the lease clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Decides a charge, if the node has a fresh view of the counter.
    pub(crate) fn admit(&self, request: AsyncRequest<'_>) -> AdmitOutcome {
        let now = self.clock.now();
        let (key, cost) = (request.charge.key.fingerprint, request.charge.cost);
        let mut shard = self.shards.lock(key);
        let Some(tracked) = shard.get_mut(&key) else { return AdmitOutcome::Direct };
        tracked.follow(&request);
        let flushed_before = tracked.in_flight();
        let outcome = match tracked.counter.admit(cost, request.nodes, now) {
            Admission::Admitted(flush) => {
                self.totals.admitted.fetch_add(cost, Relaxed);
                AdmitOutcome::Admitted { flush, reading: tracked.counter.reading(now) }
            }
            Admission::Refused => {
                self.totals.refused.fetch_add(1, Relaxed);
                AdmitOutcome::Refused(tracked.counter.refusal(cost, now))
            }
            Admission::Wait(flush) => AdmitOutcome::Wait { flush },
            Admission::Direct => AdmitOutcome::Direct,
        };
        let started = tracked.counter.in_flight().copied();
        if let Some(flush) = started.filter(|flush| Some(flush.number) != flushed_before) {
            self.tasks.push_flush(FlushBatch(vec![tracked.flush(key, flush)]));
        }
        outcome
    }

    /// Cancels a request's charge if its units have not been sent to the store yet. Returns whether
    /// it did.
    pub(crate) fn take_back(&self, key: Fingerprint, cost: u64, flush: u64) -> bool {
        let mut shard = self.shards.lock(key);
        let tracked = shard.get_mut(&key);
        let back = tracked.is_some_and(|tracked| tracked.counter.take_back(cost, flush));
        if back {
            self.totals.admitted.fetch_sub(cost, Relaxed);
        }
        back
    }

    /// Takes back what a refused request was charged, or refunds it at the store later. The counter
    /// may be forgotten by then.
    pub(crate) fn give_back(
        &self,
        charge: &Charge<'_>,
        (rules, rule): (&Arc<RuleSet>, u32),
        flush: u64,
        charged_at: Timestamp,
    ) {
        let Charge { key, cost, policy, .. } = *charge;
        if !self.take_back(key.fingerprint, cost, flush) {
            self.tasks.push_lease(LeaseTask {
                rules: Arc::clone(rules),
                rule,
                key: key.fingerprint,
                policy: *policy,
                kind: LeaseTaskKind::Return { units: cost, granted_at: charged_at },
            });
        }
    }

    /// Processes the store's answer to a request that it decided. Returns the units that the store
    /// has not answered for.
    pub(crate) fn on_direct_answer(
        &self,
        request: AsyncRequest<'_>,
        reading: Reading,
        asked_at: Timestamp,
    ) -> u64 {
        let now = self.clock.now();
        let key = request.charge.key.fingerprint;
        let mut shard = self.shards.lock(key);
        if shard.len() >= self.max_counters_per_shard && !shard.contains_key(&key) {
            return 0;
        }
        let new = || TrackedCounter::new(&request, asked_at);
        let tracked = shard.get_or_insert_with(key, request.interval, now, new);
        tracked.follow(&request);
        tracked.counter.on_direct_answer(reading, asked_at, now);
        tracked.counter.open_units()
    }

    /// Processes the outcome of a flush, and wakes the requests that wait for it.
    pub(super) fn on_flushed(
        &self,
        key: Fingerprint,
        number: u64,
        units: u64,
        outcome: FlushOutcome,
    ) {
        let now = self.clock.now();
        let outcome = match outcome {
            FlushOutcome::Unknown if self.bug.has(SeededBug::FlushRepeated) => {
                FlushOutcome::NotApplied
            }
            outcome => outcome,
        };
        match outcome {
            FlushOutcome::Answered(_) => {
                self.totals.flushes.fetch_add(1, Relaxed);
                self.totals.flushed.fetch_add(units, Relaxed);
            }
            FlushOutcome::Unknown => _ = self.totals.lost.fetch_add(units, Relaxed),
            FlushOutcome::NotApplied => {}
        }
        let mut shard = self.shards.lock(key);
        let Some(tracked) = shard.get_mut(&key) else { return };
        let overshot = tracked.counter.on_flushed(number, outcome, now);
        self.totals.overshot.fetch_add(overshot.unwrap_or(0), Relaxed);
        let waiting = std::mem::take(&mut tracked.waiting);
        drop(shard);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Completes when the store has answered a flush, or has failed to.
    pub(crate) async fn answered(&self, key: Fingerprint, flush: u64) {
        poll_fn(|context| {
            let mut shard = self.shards.lock(key);
            let waits_for = shard.get_mut(&key).filter(|it| it.in_flight() == Some(flush));
            let Some(tracked) = waits_for else { return Poll::Ready(()) };
            tracked.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Flushes the counters that are due, and forgets those that are no longer used.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        let mut pending = PendingFlushes::new(&self.tasks);
        self.shards.sweep(now, |key, tracked| {
            pending.add(tracked.counter.flush_if_due(now).map(|flush| tracked.flush(*key, flush)));
            tracked.counter.is_in_use(now).then(|| tracked.counter.interval())
        });
    }

    /// Flushes all counters, before the node stops.
    pub(crate) fn flush_all(&self) {
        let now = self.clock.now();
        let mut pending = PendingFlushes::new(&self.tasks);
        for mut shard in self.shards.iter() {
            for (key, tracked) in shard.iter_mut() {
                pending.add(tracked.counter.flush_now(now).map(|flush| tracked.flush(*key, flush)));
            }
        }
    }

    /// Moves the counters to the rules that `successor` names. Drops counters that no rule uses any
    /// more, with their unreported units.
    pub(crate) fn move_to(
        &self,
        rules: &Arc<RuleSet>,
        successor: impl Fn(&Arc<RuleSet>, u32) -> Option<u32>,
    ) {
        for mut shard in self.shards.iter() {
            shard.retain(|_, tracked| {
                let at = successor(&tracked.rules, tracked.rule);
                let policy = at.and_then(|at| rules[at].limit().policy().copied());
                let (Some(at), Some(policy)) = (at, policy) else {
                    std::mem::take(&mut tracked.waiting).into_iter().for_each(Waker::wake);
                    return false;
                };
                tracked.move_to(rules, at, policy);
                true
            });
        }
    }

    /// Forgets a counter that was reset, with its unreported units.
    pub(crate) fn forget(&self, key: Fingerprint) {
        let mut shard = self.shards.lock(key);
        if let Some(tracked) = shard.remove(&key) {
            drop(shard);
            tracked.waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn count_call(&self) {
        self.totals.calls.fetch_add(1, Relaxed);
    }

    /// Calls `visit` with the rule of each counter and its open units.
    pub(crate) fn for_each_counter(&self, mut visit: impl FnMut(&Rule, u64)) {
        for shard in self.shards.iter() {
            for tracked in shard.values() {
                visit(&tracked.rules[tracked.rule], tracked.counter.open_units());
            }
        }
    }

    /// Units of a counter that the store has not answered for.
    pub(crate) fn open_units(&self, key: Fingerprint) -> u64 {
        self.shards.lock(key).get(&key).map_or(0, |tracked| tracked.counter.open_units())
    }

    pub(crate) fn stats(&self) -> AsyncStats {
        let (mut counters, mut open) = (0, 0);
        for shard in self.shards.iter() {
            counters += shard.len();
            open += shard.values().map(|tracked| tracked.counter.open_units()).sum::<u64>();
        }
        let Totals { admitted, refused, calls, flushes, flushed, lost, overshot } = &self.totals;
        AsyncStats {
            counters,
            units_open: open,
            units_admitted: admitted.load(Relaxed),
            units_flushed: flushed.load(Relaxed),
            units_lost: lost.load(Relaxed),
            units_overshot: overshot.load(Relaxed),
            flushes: flushes.load(Relaxed),
            flush_calls: calls.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }
}

/// Flushes that are sent to the store in few calls.
struct PendingFlushes<'a> {
    tasks: &'a TaskQueue,
    batch: Vec<CounterFlush>,
}

impl<'a> PendingFlushes<'a> {
    const fn new(tasks: &'a TaskQueue) -> Self {
        Self { tasks, batch: Vec::new() }
    }

    fn add(&mut self, flush: Option<CounterFlush>) {
        self.batch.extend(flush);
        if self.batch.len() == MAX_BATCH {
            self.tasks.push_flush(FlushBatch(std::mem::take(&mut self.batch)));
        }
    }
}

impl Drop for PendingFlushes<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.tasks.push_flush(FlushBatch(std::mem::take(&mut self.batch)));
        }
    }
}

impl TrackedCounter {
    fn new(request: &AsyncRequest<'_>, now: Timestamp) -> Self {
        Self {
            counter: AsyncCounter::new(*request.charge.policy, request.interval, now),
            rules: Arc::clone(request.rules),
            rule: request.rule,
            waiting: Vec::new(),
        }
    }

    fn in_flight(&self) -> Option<u64> {
        self.counter.in_flight().map(|flush| flush.number)
    }

    fn flush(&self, key: Fingerprint, flush: Flush) -> CounterFlush {
        let (rules, policy) = (Arc::clone(&self.rules), *self.counter.policy());
        let Flush { number, units, .. } = flush;
        CounterFlush { rules, rule: self.rule, key, policy, number, units }
    }

    /// Switches to the rule set of a request if it is another one.
    fn follow(&mut self, request: &AsyncRequest<'_>) {
        if Arc::ptr_eq(&self.rules, request.rules) && self.rule == request.rule {
            return;
        }
        self.counter.follow(*request.charge.policy, request.interval);
        (self.rules, self.rule) = (Arc::clone(request.rules), request.rule);
    }

    fn move_to(&mut self, rules: &Arc<RuleSet>, rule: u32, policy: tidegate_core::policy::Policy) {
        // A rule that is no longer asynchronous flushes once more, at the next sweep.
        let interval = flush_interval(&rules[rule]).unwrap_or_default();
        self.counter.follow(policy, interval);
        (self.rules, self.rule) = (Arc::clone(rules), rule);
    }
}
