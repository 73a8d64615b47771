//! The calls to the store that leased and asynchronous counters of this node need. The limiter
//! starts no tasks itself: the caller takes them from here and runs them concurrently.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, GrantTerms};
use tidegate_core::time::Timestamp;
use tidegate_rules::RuleSet;

use crate::write_behind::FlushBatch;

/// One call to the store. Run it with [`Limiter::run_lease_task`](crate::Limiter::run_lease_task);
/// a task that is dropped leaves requests waiting.
#[derive(Debug)]
#[must_use = "requests may wait for it"]
pub struct StoreTask(pub(super) StoreTaskKind);

#[derive(Debug)]
pub(super) enum StoreTaskKind {
    /// A call for one counter.
    Counter(LeaseTask),
    /// A report of what was admitted on asynchronous counters.
    Flush(FlushBatch),
}

/// A call for one counter.
#[derive(Debug)]
pub(crate) struct LeaseTask {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) rule: u32,
    pub(crate) key: Fingerprint,
    /// The policy by which the called store counts.
    pub(crate) policy: Policy,
    pub(crate) kind: LeaseTaskKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseTaskKind {
    /// Asks for units.
    Ask { question: u64, least: u64, terms: GrantTerms },
    /// Returns units that were granted at this instant.
    Return { units: u64, granted_at: Timestamp },
    /// Charges a rule in shadow mode, for which no request waits.
    Charge { cost: u64 },
    /// Resets the counter, which no correct program does.
    #[cfg(feature = "seeded-bugs")]
    Reset,
}

impl LeaseTask {
    pub(super) const fn is_question(&self) -> bool {
        matches!(self.kind, LeaseTaskKind::Ask { .. })
    }

    /// A charge on the counter.
    pub(super) fn charge(&self, cost: u64) -> Charge<'_> {
        let key = self.rules[self.rule].key(self.key);
        Charge { lent: true, ..Charge::plain(key, &self.policy, cost) }
    }
}

/// Tasks in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct TaskQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    tasks: VecDeque<StoreTask>,
    consumer: Option<Waker>,
}

impl TaskQueue {
    pub(crate) fn push_lease(&self, task: LeaseTask) {
        self.push(StoreTask(StoreTaskKind::Counter(task)));
    }

    pub(crate) fn push_flush(&self, batch: FlushBatch) {
        self.push(StoreTask(StoreTaskKind::Flush(batch)));
    }

    fn push(&self, task: StoreTask) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.tasks.push_back(task);
        if let Some(consumer) = state.consumer.take() {
            drop(state);
            consumer.wake();
        }
    }

    /// The next task, if there is one.
    pub(super) fn pop(&self) -> Option<StoreTask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tasks.pop_front()
    }

    /// Waits for the next task. For a single consumer.
    pub(super) async fn next(&self) -> StoreTask {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(task) = state.tasks.pop_front() {
                return Poll::Ready(task);
            }
            state.consumer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
