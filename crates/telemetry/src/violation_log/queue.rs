//! The queue of violations between decisions and the writer. It consists of batches that are
//! filled, written and reused.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use tidegate_rules::{Facts, RuleSet};

use super::ViolationCounts;
use super::raw_batch::{RawViolationBatch, RuleRefusal};
use super::sample::{LogSample, RuleSetSample};

/// Maximum number of queued violations.
pub const QUEUE_CAPACITY: usize = 1 << 16;

/// Maximum number of bytes of the queued violations; the facts of requests may be long.
const MAX_QUEUE_BYTES: usize = 32 << 20;

/// Maximum number of violations in a batch.
pub(super) const MAX_BATCH: usize = QUEUE_CAPACITY / 4;

/// Maximum number of empty batches kept for reuse.
const MAX_SPARE_BATCHES: usize = 4;

/// The result of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchWriteOutcome {
    /// There was nothing to write.
    Empty,
    Written,
    /// The batch is back in the queue.
    Failed,
}

/// What the caller has to do after a violation was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FollowUp {
    /// Wake the writer: the violation is the first in the queue, or it completes a batch.
    pub(super) wake: bool,
    /// Add the violation to the live feed.
    pub(super) show: bool,
}

/// The queued violations and the counts of the others, under one lock, so that the counts are
/// always consistent.
#[derive(Default)]
// `repr(C)` keeps the fields in order: those that a decision uses come first and are adjacent.
#[repr(C)]
pub(super) struct ViolationQueue {
    /// The batch that new violations are added to.
    open: RawViolationBatch,
    /// Number of violations in the closed batches.
    waiting: usize,
    /// Bytes of the violations in the closed batches.
    bytes: usize,
    /// Whether the live feed has listeners.
    is_live: bool,
    /// Closed batches, oldest first.
    closed: VecDeque<RawViolationBatch>,
    /// Empty batches for reuse.
    spare: Vec<RawViolationBatch>,
    /// Number of batches taken for writing, not counting retries.
    batches_taken: u64,
    /// Number of violations being written.
    writing: usize,
    written: u64,
    dropped: u64,
    /// Violations dropped before they were sampled; `None` if sampling is off.
    dropped_sample: Option<LogSample>,
    /// Whether the caller currently samples batches taken from the queue.
    is_sampling: bool,
}

impl ViolationQueue {
    pub(super) const fn counts(&self) -> ViolationCounts {
        let Self { written, dropped, .. } = *self;
        let waiting = (self.queued() + self.writing) as u64;
        ViolationCounts { received: written + dropped + waiting, written, dropped, waiting }
    }

    /// Number of violations that wait to be written.
    pub(super) const fn queued(&self) -> usize {
        self.waiting + self.open.len()
    }

    const fn is_over_capacity(&self) -> bool {
        self.queued() > QUEUE_CAPACITY || self.bytes + self.open.bytes() > MAX_QUEUE_BYTES
    }

    /// Sets whether violations go to the live feed.
    pub(super) const fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
    }

    /// Queues a violation. Drops the oldest ones if the queue is full.
    #[inline]
    pub(super) fn push(
        &mut self,
        rules: &Arc<RuleSet>,
        refusal: impl FnOnce() -> RuleRefusal,
        facts: &Facts<'_>,
    ) -> FollowUp {
        if !self.open.is_for(rules) || self.open.len() == MAX_BATCH {
            self.start_batch(rules);
        }
        self.open.push(refusal, facts);
        if self.is_over_capacity() {
            self.drop_overflow();
        }
        FollowUp { wake: matches!(self.queued(), 1 | MAX_BATCH), show: self.is_live }
    }

    /// Opens a new batch for violations of a rule set.
    #[cold]
    fn start_batch(&mut self, rules: &Arc<RuleSet>) {
        self.close_open_batch();
        self.open.reset_for(rules);
    }

    /// Closes the open batch and opens an empty one.
    fn close_open_batch(&mut self) {
        let batch = mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        if batch.len() == 0 {
            return self.recycle(batch);
        }
        (self.waiting, self.bytes) = (self.waiting + batch.len(), self.bytes + batch.bytes());
        self.closed.push_back(batch);
    }

    /// Takes the oldest batch for writing. The caller reports the result to
    /// [`ViolationQueue::settle_batch`].
    ///
    /// The batch gets its sequence number here and is not extended afterwards. So a retry under the
    /// same number has the same violations, or fewer.
    pub(super) fn take_batch(&mut self) -> Option<RawViolationBatch> {
        if self.closed.is_empty() {
            self.close_open_batch();
        }
        let mut batch = self.closed.pop_front()?;
        if batch.sequence() == 0 {
            self.batches_taken += 1;
            batch.set_sequence(self.batches_taken);
        }
        self.writing = batch.len();
        (self.waiting, self.bytes) = (self.waiting - batch.len(), self.bytes - batch.bytes());
        Some(batch)
    }

    /// Turns sampling on: keeps count of the violations that are dropped before they are sampled.
    pub(super) fn enable_sampling(&mut self) {
        self.dropped_sample = Some(LogSample::default());
    }

    /// Takes all batches that were not sampled yet. The caller returns them with
    /// [`ViolationQueue::restore_sampled`]. Until then nothing is dropped, because the batches
    /// taken are older than the ones in the queue.
    pub(super) fn take_unsampled(&mut self) -> Vec<RawViolationBatch> {
        if self.open.len() > 0 {
            self.close_open_batch();
        }
        self.is_sampling = true;
        let first =
            self.closed.iter().position(|batch| !batch.is_sampled()).unwrap_or(self.closed.len());
        self.closed.drain(first..).collect()
    }

    /// Returns sampled batches to the queue, before those that were queued in the meantime.
    pub(super) fn restore_sampled(&mut self, batches: Vec<RawViolationBatch>) {
        self.is_sampling = false;
        let since =
            self.closed.iter().position(|batch| !batch.is_sampled()).unwrap_or(self.closed.len());
        let newer = self.closed.split_off(since);
        self.closed.extend(batches.into_iter().map(RawViolationBatch::into_sampled));
        self.closed.extend(newer);
        self.drop_overflow();
    }

    /// Takes the counts of violations dropped before they were sampled.
    pub(super) fn take_dropped_sample(&mut self) -> Vec<RuleSetSample> {
        self.dropped_sample.as_mut().map(LogSample::take).unwrap_or_default()
    }

    /// Completes a batch that was taken for writing. A failed batch goes back to the front of the
    /// queue; if the queue is now too long, the oldest violations are dropped.
    pub(super) fn settle_batch(
        &mut self,
        batch: RawViolationBatch,
        recorded: bool,
    ) -> BatchWriteOutcome {
        self.writing = 0;
        if recorded {
            self.written += batch.len() as u64;
            self.recycle(batch);
            return BatchWriteOutcome::Written;
        }
        (self.waiting, self.bytes) = (self.waiting + batch.len(), self.bytes + batch.bytes());
        self.closed.push_front(batch);
        self.drop_overflow();
        BatchWriteOutcome::Failed
    }

    /// Drops all queued violations.
    pub(super) fn clear(&mut self) {
        while self.drop_oldest() {}
    }

    #[cold]
    fn drop_overflow(&mut self) {
        while !self.is_sampling && self.is_over_capacity() && self.drop_oldest() {}
    }

    /// Drops the oldest violation. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        if self.closed.is_empty() {
            self.close_open_batch();
        }
        let Some(oldest) = self.closed.front_mut() else { return false };
        let rule = oldest.drop_oldest();
        if let (Some(dropped), Some(rules), Some(rule)) =
            (&mut self.dropped_sample, oldest.rules(), rule)
            && !oldest.is_sampled()
        {
            dropped.add_dropped(rules, rule);
        }
        self.dropped += 1;
        self.waiting -= 1;
        if oldest.len() == 0 {
            self.bytes -= oldest.bytes();
            if let Some(batch) = self.closed.pop_front() {
                self.recycle(batch);
            }
        }
        true
    }

    /// Keeps a batch for reuse.
    fn recycle(&mut self, mut batch: RawViolationBatch) {
        if self.spare.len() < MAX_SPARE_BATCHES {
            batch.clear();
            self.spare.push(batch);
        }
    }
}
