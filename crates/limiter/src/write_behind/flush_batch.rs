//! Flushes on their way to the store: one call for many counters.

use std::sync::Arc;

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_rules::RuleSet;

use super::async_book::AsyncBook;
use super::async_counter::FlushOutcome;
use crate::lease::StoreCallReport;
use crate::limiter::Limiter;

/// The most counters that one call flushes.
pub(crate) const MAX_BATCH: usize = 64;

/// The flushes of one call, of different counters.
#[derive(Debug)]
pub(crate) struct FlushBatch(pub(super) Vec<CounterFlush>);

/// The flush of one counter.
#[derive(Debug)]
pub(super) struct CounterFlush {
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: u32,
    pub(super) key: Fingerprint,
    pub(super) policy: Policy,
    pub(super) number: u64,
    pub(super) units: u64,
}

impl CounterFlush {
    fn charge(&self) -> Charge<'_> {
        let key = self.rules[self.rule].key(self.key);
        Charge { lent: true, ..Charge::plain(key, &self.policy, self.units) }
    }
}

impl<S: Store, L: Store> Limiter<S, L> {
    /// Charges by force what was admitted: it must count even where it does not fit.
    pub(crate) async fn run_flush(&self, book: &AsyncBook, batch: FlushBatch) -> StoreCallReport {
        let charges: Vec<Charge<'_>> = batch.0.iter().map(CounterFlush::charge).collect();
        let mut readings = vec![Reading::default(); charges.len()];
        let outcomes = vec![FlushOutcome::Unknown; charges.len()];
        let mut answer = FlushGuard { book, batch: &batch, outcomes };
        book.count_call();
        let answered = self.store.apply(Op::Force, &charges, &mut readings).await;
        for (i, (outcome, reading)) in answer.outcomes.iter_mut().zip(readings).enumerate() {
            *outcome = match &answered {
                Ok(_) => FlushOutcome::Answered(reading),
                Err(error) if error.answered.contains(&i) => FlushOutcome::Answered(reading),
                Err(error) if error.unknown.contains(&i) => FlushOutcome::Unknown,
                Err(_) => FlushOutcome::NotApplied,
            };
        }
        let is_answered = |outcome: &&FlushOutcome| matches!(outcome, FlushOutcome::Answered(_));
        StoreCallReport::Flush {
            counters: batch.0.len(),
            answered: answer.outcomes.iter().filter(is_answered).count(),
            units: batch.0.iter().map(|flush| flush.units).sum(),
        }
    }
}

/// Delivers the outcomes when dropped, also if the task is cancelled: the flush may then have run.
struct FlushGuard<'a> {
    book: &'a AsyncBook,
    batch: &'a FlushBatch,
    outcomes: Vec<FlushOutcome>,
}

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        for (flush, outcome) in self.batch.0.iter().zip(&self.outcomes) {
            self.book.on_flushed(flush.key, flush.number, flush.units, *outcome);
        }
    }
}
