//! Borrowing from other regions: what the limiter asks their stores, in batches.
//!
//! ```text
//!  request ─▶ own leases ── store short ──▶ CounterBorrow ── units held? ──▶ spent
//!                                                │ a round is due
//!                                                ▼
//!                       queue of a region ─▶ BorrowBatch ─▶ Op::Grant, Op::Refund ─▶ its store
//! ```
//!
//! A region has a bounded number of questions in flight ([`question_window`](super::question_window));
//! the others wait in its queue, and the longest-waiting goes first.
//!
//! No request waits for a batch. The limiter starts no task and calls no other region by itself:
//! the server takes batches from [`Limiter::pop_borrow_batch`], so that a simulator can run the
//! same code.

use futures_util::future::join_all;
use tidegate_core::store::Store;
use tidegate_core::time::Micros;
use tidegate_rules::Rule;

use super::borrow_book::borrow_terms;
use super::borrow_stats::BorrowStats;
use super::lenders::{LenderId, Lenders};
use super::question_window::QuestionsInFlight;
use super::task_queue::LeaseTask;
use crate::limiter::Limiter;

/// The most counters in one batch.
pub(super) const MAX_BATCH: usize = 256;

/// Calls to the store of one region. Run it with
/// [`Limiter::run_borrow_batch`](crate::Limiter::run_borrow_batch). Until then its questions count
/// as those in flight.
#[derive(Debug)]
#[must_use = "its units are not borrowed or returned if it is dropped"]
pub struct BorrowBatch {
    lender: LenderId,
    tasks: Vec<LeaseTask>,
    questions: QuestionsInFlight,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowReport {
    /// Counters of which units were asked for.
    pub asked: usize,
    /// How many of the questions the store answered.
    pub answered: usize,
    /// Units that it granted.
    pub granted: u64,
    /// Units returned, as far as the store took them back.
    pub returned: u64,
}

impl BorrowBatch {
    /// A batch with these calls, if there are any. `questions` may have room for more.
    pub(super) fn new(
        lender: LenderId,
        tasks: Vec<LeaseTask>,
        mut questions: QuestionsInFlight,
    ) -> Option<Self> {
        questions.shrink_to(tasks.iter().filter(|task| task.is_question()).count());
        (!tasks.is_empty()).then_some(Self { lender, tasks, questions })
    }

    /// Number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether it has no call, which does not happen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Lets rules with `borrow` take units from the stores of these regions. Call it after
    /// [`with_leases`](Self::with_leases). Every [`borrow_interval`](Self::borrow_interval), the
    /// caller must take all [batches](Self::pop_borrow_batch) of each region and run them, also
    /// after [`retire_leases`](Self::retire_leases). After each batch it must run the
    /// [next full one](Self::pop_full_borrow_batch).
    #[must_use]
    pub fn with_lenders(mut self, regions: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        if let Some(counters) = &mut self.node_counters {
            counters.set_lenders(Lenders::new(regions));
        }
        self
    }

    /// How often to take batches: the shortest interval of the active rules that borrow. `None` if
    /// none does, or there are no lenders.
    #[must_use]
    pub fn borrow_interval(&self) -> Option<Micros> {
        let counters = self.node_counters.as_ref()?;
        let (rules, lenders) = (self.rules(), &counters.leases.lenders);
        let borrows = |rule: &&Rule| {
            let mut regions = rule.lenders().iter();
            rule.is_active() && regions.any(|lender| lenders.find(lender.region()).is_some())
        };
        let borrowing = rules.rules().iter().filter(borrows);
        borrowing.filter_map(borrow_terms).map(|terms| terms.every).min()
    }

    /// Sets whether to borrow from a region. A region whose store must not be used, or does not
    /// answer, is not asked, and gets nothing back. What was borrowed from it is still spent.
    pub fn set_lender_usable(&self, lender: &str, usable: bool) {
        let lenders = self.node_counters.as_ref().map(|counters| &counters.leases.lenders);
        if let Some((lenders, lender)) = lenders.and_then(|it| Some((it, it.find(lender)?))) {
            lenders.set_usable(lender, usable);
        }
    }

    /// What to ask the store of a region now; `None` if there is nothing, or as many questions are
    /// in flight as the store answers in time. A batch has a bounded number of counters, and the
    /// next call continues.
    pub fn pop_borrow_batch(&self, lender: &str) -> Option<BorrowBatch> {
        let book = &self.node_counters.as_ref()?.leases;
        book.take_borrow_batch(book.lenders.find(lender)?, self.store.node_count())
    }

    /// The batch that follows one that has run: the questions that had to wait for it, if they fill
    /// a batch. Fewer wait until the next interval, so that calls stay few.
    pub fn pop_full_borrow_batch(&self, lender: &str) -> Option<BorrowBatch> {
        let book = &self.node_counters.as_ref()?.leases;
        book.take_full_borrow_batch(book.lenders.find(lender)?, self.store.node_count())
    }

    /// Makes the calls of a batch concurrently to the store of its region, and processes the
    /// answers. If the future is dropped, units that were granted are lost to this node.
    pub async fn run_borrow_batch<R: Store>(&self, batch: BorrowBatch, store: &R) -> BorrowReport {
        let Some(counters) = &self.node_counters else { return BorrowReport::default() };
        let BorrowBatch { lender, tasks, mut questions } = batch;
        let book = &counters.leases;
        let reports = join_all(tasks.iter().map(|task| book.run_borrow_task(lender, task, store)));
        let report = reports.await.into_iter().fold(BorrowReport::default(), BorrowReport::plus);
        questions.set_answered(report.answered);
        report
    }

    /// What this node borrows, if it [may](Self::with_lenders).
    #[must_use]
    pub fn borrow_stats(&self) -> Option<BorrowStats> {
        let book = &self.node_counters.as_ref()?.leases;
        (book.lenders.count() > 0).then(|| book.borrow_stats())
    }
}

impl BorrowReport {
    const fn plus(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            answered: self.answered + other.answered,
            granted: self.granted + other.granted,
            returned: self.returned + other.returned,
        }
    }
}
