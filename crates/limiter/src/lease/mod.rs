//! Leases: the node takes units of hot counters in advance and decides locally.
//!
//! ```text
//!  request ─▶ LeaseBook ─▶ CounterLease ── units left? ──▶ spent: decided without the store
//!                               │ low, or none left
//!                               ▼
//!                          TaskQueue ─▶ Op::Grant ─▶ store ─▶ answer ─▶ CounterLease
//! ```
//!
//! The store charges the units when it grants them, by the lending policy of the rule
//! ([`Policy::lending`]), so the bound of the rule holds for any number of nodes. The limiter
//! starts no tasks: the server takes them from [`Limiter::next_lease_task`], so that a simulator
//! can run the same code.
//!
//! [`Policy::lending`]: tidegate_core::policy::Policy::lending

mod borrow_batch;
mod borrow_book;
mod borrow_stats;
mod counter_borrow;
mod counter_lease;
mod counter_shards;
mod decision;
mod demand;
#[cfg(test)]
mod grant_accounts;
mod held_leases;
mod hot_counters;
mod last_reading;
mod lease_book;
mod lenders;
mod memory_budget;
mod question_window;
mod seeded_bug;
mod task_queue;
mod wait_estimate;

use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::Reading;
use tidegate_core::store::{GrantTerms, Op, Store};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Facts, Rule, RuleSet};

use crate::limiter::Limiter;
use crate::node_counters::{NodeCounters, NodeMode};
use crate::refund::refund_charges;
use crate::write_behind::{AsyncRequest, AsyncStats};
use task_queue::StoreTaskKind;

pub use borrow_batch::{BorrowBatch, BorrowReport};
pub(crate) use borrow_book::lends_alike;
pub use borrow_stats::{BorrowStats, BorrowedUnits, LenderStats, RuleBorrowing};
pub(crate) use counter_lease::HOT_REQUESTS;
pub(crate) use counter_shards::CounterShards;
pub(crate) use decision::lease_ttl;
pub(crate) use held_leases::UnitOrigin;
pub(crate) use hot_counters::HOT_TABLE_BYTES;
pub(crate) use lease_book::{LeaseBook, LeaseRequest, TakeOutcome};
#[cfg(feature = "seeded-bugs")]
pub(crate) use lenders::LenderId;
pub(crate) use lenders::Lenders;
pub(crate) use seeded_bug::BugSwitch;
#[cfg(feature = "seeded-bugs")]
pub use seeded_bug::SeededBug;
#[cfg(not(feature = "seeded-bugs"))]
pub(crate) use seeded_bug::SeededBug;
pub use task_queue::StoreTask;
pub(crate) use task_queue::{LeaseTask, LeaseTaskKind, TaskQueue};
pub(crate) use wait_estimate::{CounterDebt, wait_until_fits};

/// The default memory limit of a node's leased and asynchronous counters, in bytes.
pub const DEFAULT_LEASE_BYTES: usize = 64 << 20;

/// The clock that ends leases. It must count on while the process is stopped or the machine
/// suspended (`CLOCK_BOOTTIME` on Linux); steps of the wall clock must not move it.
#[derive(Clone)]
pub struct LeaseClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

/// Statistics of this node's leases. Units and questions are counted from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Counters that are leased now, or were a moment ago.
    pub counters: usize,
    /// Units that the node holds now.
    pub units_held: u64,
    /// Units that the store granted.
    pub units_granted: u64,
    /// Units spent on requests.
    pub units_spent: u64,
    /// Units returned to the store. It gives back those that have not drained since the grant.
    pub units_returned: u64,
    /// Units that were neither spent nor returned when their lease ended.
    pub units_expired: u64,
    /// Questions to the store.
    pub questions: u64,
    /// Requests refused without asking the store, because it was short.
    pub refused: u64,
}

/// A call to the store that a node made for its counters, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCallReport {
    /// Units of one counter were asked for.
    Grant {
        /// The ID of the counter's rule.
        rule: Box<str>,
        /// The most that were asked for.
        most: u32,
        /// How many the store granted; `None` if it did not answer.
        granted: Option<u32>,
    },
    /// The node reported to the store what it had admitted.
    Flush {
        /// Number of counters in the call.
        counters: usize,
        /// How many of them the store answered for.
        answered: usize,
        /// Units of all of them.
        units: u64,
    },
    /// Units were returned, or a shadow rule was charged.
    Other,
}

impl LeaseClock {
    /// A clock that `now` reads.
    #[must_use]
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseClock(..)")
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Lets the node decide leased and asynchronous rules by itself, with at most `max_bytes` for
    /// their counters. The rule set must be [for a shared store], and the caller must run every
    /// task from [`next_lease_task`](Self::next_lease_task), and call
    /// [`sweep_leases`](Self::sweep_leases) every few milliseconds.
    ///
    /// [for a shared store]: RuleSet::for_shared_store
    #[must_use]
    pub fn with_leases(mut self, clock: LeaseClock, max_bytes: usize) -> Self {
        self.node_counters = Some(NodeCounters::new(clock, max_bytes));
        self
    }

    /// Switches on a bug, to prove that a test finds it. Call it after [`with_leases`] and
    /// [`with_local`](Limiter::with_local).
    ///
    /// [`with_leases`]: Self::with_leases
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_seeded_bug(mut self, bug: SeededBug) -> Self {
        if let Some(counters) = &mut self.node_counters {
            counters.set_bug(BugSwitch::new(bug));
        }
        if let Some(local) = &mut self.local {
            local.set_bug(BugSwitch::new(bug));
        }
        self
    }

    /// The next call to the store that the node's counters need. For a single consumer, which runs
    /// the tasks concurrently. Never completes if the store decides each request.
    pub async fn next_lease_task(&self) -> StoreTask {
        match &self.node_counters {
            Some(counters) => counters.tasks.next().await,
            None => std::future::pending().await,
        }
    }

    /// The next call to the store that the node's counters need, if there is one now.
    pub fn pop_lease_task(&self) -> Option<StoreTask> {
        self.node_counters.as_ref()?.tasks.pop()
    }

    /// Makes a call to the store, and processes its answer. Returns what the call was for and what
    /// came of it.
    pub async fn run_lease_task(&self, task: StoreTask) -> StoreCallReport {
        let Some(counters) = &self.node_counters else { return StoreCallReport::Other };
        match task.0 {
            StoreTaskKind::Counter(task) => self.call_for_counter(counters, task).await,
            StoreTaskKind::Flush(batch) => self.run_flush(&counters.flushes, batch).await,
        }
    }

    async fn call_for_counter(&self, counters: &NodeCounters, task: LeaseTask) -> StoreCallReport {
        let book = &counters.leases;
        let mut readings = [Reading::default()];
        match task.kind {
            LeaseTaskKind::Ask { question, least, terms } => {
                let mut answer = AnswerGuard { book, task: &task, question, reading: None };
                let reading = ask_store(&self.store, &task, least, terms).await;
                answer.reading = reading;
                drop(answer);
                return StoreCallReport::Grant {
                    rule: task.rules[task.rule].id().into(),
                    most: terms.most,
                    granted: reading.map(|reading| reading.granted),
                };
            }
            LeaseTaskKind::Return { units, granted_at } => {
                return_units(&self.store, &task, units, granted_at).await;
            }
            LeaseTaskKind::Charge { cost } => {
                let (charge, asked_at) = (task.charge(cost), counters.flushes.now());
                // If the store does not answer, the shadow rule counts a little less.
                let answered = self.store.apply(Op::Charge, &[charge], &mut readings).await;
                let (rules, rule) = (&task.rules, task.rule);
                if let (Ok(_), Some(NodeMode::Async { interval })) =
                    (answered, NodeMode::of(&rules[rule]))
                {
                    let nodes = self.store.node_count();
                    let request = AsyncRequest { charge: &charge, rules, rule, interval, nodes };
                    counters.flushes.on_direct_answer(request, readings[0], asked_at);
                }
            }
            #[cfg(feature = "seeded-bugs")]
            LeaseTaskKind::Reset => {
                _ = self.store.apply(Op::Reset, &[task.charge(1)], &mut readings).await;
            }
        }
        StoreCallReport::Other
    }

    /// Returns unspent units of ended leases, and of counters that get no more requests. Flushes
    /// the asynchronous counters that are due.
    pub fn sweep_leases(&self) {
        if let Some(counters) = &self.node_counters {
            counters.sweep();
        }
    }

    /// Gives up all leases and flushes all asynchronous counters, before the node stops. Run the
    /// tasks that follow.
    pub fn retire_leases(&self) {
        if let Some(counters) = &self.node_counters {
            counters.retire();
        }
    }

    /// Statistics of this node's leases, if it leases.
    #[must_use]
    pub fn lease_stats(&self) -> Option<LeaseStats> {
        self.node_counters.as_ref().map(|counters| counters.leases.stats())
    }

    /// Statistics of this node's asynchronous counters, if it has any.
    #[must_use]
    pub fn async_stats(&self) -> Option<AsyncStats> {
        self.node_counters.as_ref().map(|counters| counters.flushes.stats())
    }

    /// What this node holds of a rule's counter for these facts: units to spend, or units that it
    /// has not flushed; `None` if the store decides every request.
    pub(crate) fn units_held(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        facts: &Facts<'_>,
    ) -> Option<u64> {
        let counters = self.node_counters.as_ref()?;
        let key = rule.fingerprint(facts, rules);
        match NodeMode::of(rule)? {
            NodeMode::Leased { .. } => Some(counters.leases.units_held(key)),
            NodeMode::Async { .. } => Some(counters.flushes.open_units(key)),
        }
    }
}

/// Asks a store for units. `None` if it did not answer.
async fn ask_store<S: Store>(
    store: &S,
    task: &LeaseTask,
    least: u64,
    terms: GrantTerms,
) -> Option<Reading> {
    let mut readings = [Reading::default()];
    let answered = store.apply(Op::Grant(terms), &[task.charge(least)], &mut readings).await;
    answered.is_ok().then_some(readings[0])
}

/// Returns units that a store granted at this instant of its clock.
async fn return_units<S: Store>(store: &S, task: &LeaseTask, units: u64, granted_at: Timestamp) {
    let mut readings = [Reading { now: granted_at, ..Reading::default() }];
    refund_charges(store, &[task.charge(units)], &mut readings).await;
}

/// Delivers the answer to a question when dropped, also if the task is cancelled: no request waits
/// for an answer that never comes.
struct AnswerGuard<'a> {
    book: &'a LeaseBook,
    task: &'a LeaseTask,
    question: u64,
    reading: Option<Reading>,
}

impl Drop for AnswerGuard<'_> {
    fn drop(&mut self) {
        self.book.on_answer(self.task.key, self.question, self.reading);
    }
}
