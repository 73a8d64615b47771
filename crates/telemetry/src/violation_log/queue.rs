//! The queue between decisions and whoever writes violations: pages that are filled, written and used again.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use tidegate_rules::{Facts, RuleSet};

use super::ViolationCounts;
use super::raw_batch::{RawViolationBatch, RuleRefusal};
use super::sample::{LogSample, RuleSetSample};

/// The most that wait to be written.
pub const QUEUE_CAPACITY: usize = 1 << 16;

/// The most bytes that what waits may take; facts of requests may be long.
const MAX_QUEUE_BYTES: usize = 32 << 20;

/// The most that are written at once.
pub(super) const MAX_BATCH: usize = QUEUE_CAPACITY / 4;

/// The most pages that are kept to be used again.
const MAX_SPARE_BATCHES: usize = 4;

/// What came of writing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchWriteOutcome {
    /// Nothing waits.
    Empty,
    Written,
    /// It waits again.
    Failed,
}

/// What is due when a violation is jotted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FollowUp {
    /// To wake whoever writes: it is the first that waits, or the last of a batch.
    pub(super) wake: bool,
    /// To show it to somebody who watches.
    pub(super) show: bool,
}

/// What waits, and what became of the rest: under one lock, so that the sums are right at any time.
#[derive(Default)]
// In order: what a decision touches comes first, in one place.
#[repr(C)]
pub(super) struct ViolationQueue {
    /// Violations are added to it.
    open: RawViolationBatch,
    /// How many violations are on the pages before it, and the bytes that they take.
    waiting: usize,
    bytes: usize,
    /// Whether somebody watches.
    is_live: bool,
    /// Those pages, oldest first.
    closed: VecDeque<RawViolationBatch>,
    spare: Vec<RawViolationBatch>,
    /// How many pages were taken to be written, for the first time.
    batches_taken: u64,
    /// They are being written.
    writing: usize,
    written: u64,
    dropped: u64,
    /// Those that were dropped before somebody looked at them, where somebody looks at them.
    dropped_sample: Option<LogSample>,
    /// Somebody looks at pages right now.
    is_sampling: bool,
}

impl ViolationQueue {
    pub(super) const fn counts(&self) -> ViolationCounts {
        let Self { written, dropped, .. } = *self;
        let waiting = (self.queued() + self.writing) as u64;
        ViolationCounts { heard: written + dropped + waiting, written, dropped, waiting }
    }

    /// How many wait to be written.
    pub(super) const fn queued(&self) -> usize {
        self.waiting + self.open.len()
    }

    const fn is_over_capacity(&self) -> bool {
        self.queued() > QUEUE_CAPACITY || self.bytes + self.open.bytes() > MAX_QUEUE_BYTES
    }

    /// Whether violations are to be shown from now on.
    pub(super) const fn set_live(&mut self, watched: bool) {
        self.is_live = watched;
    }

    /// Jots down one more.
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

    /// Begins a new page, for violations under a rule set.
    #[cold]
    fn start_batch(&mut self, rules: &Arc<RuleSet>) {
        self.close_open_batch();
        self.open.reset_for(rules);
    }

    /// Puts the open page to the others; another is open from then on.
    fn close_open_batch(&mut self) {
        let page = mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        if page.len() == 0 {
            return self.recycle(page);
        }
        (self.waiting, self.bytes) = (self.waiting + page.len(), self.bytes + page.bytes());
        self.closed.push_back(page);
    }

    /// Takes a page to write it; [`ViolationQueue::settle_batch`] hears what came of it. It has a number from then on, and nothing is
    /// added to it: what comes again under a number is what came before, or less.
    pub(super) fn take_batch(&mut self) -> Option<RawViolationBatch> {
        if self.closed.is_empty() {
            self.close_open_batch();
        }
        let mut page = self.closed.pop_front()?;
        if page.sequence() == 0 {
            self.batches_taken += 1;
            page.set_sequence(self.batches_taken);
        }
        self.writing = page.len();
        (self.waiting, self.bytes) = (self.waiting - page.len(), self.bytes - page.bytes());
        Some(page)
    }

    /// From now on somebody looks at all pages, and hears of what is dropped before.
    pub(super) fn enable_sampling(&mut self) {
        self.dropped_sample = Some(LogSample::default());
    }

    /// Takes all pages that nobody has looked at; [`ViolationQueue::restore_sampled`] has them back. Until then nothing is dropped: they are
    /// older than what comes meanwhile.
    pub(super) fn take_unsampled(&mut self) -> Vec<RawViolationBatch> {
        if self.open.len() > 0 {
            self.close_open_batch();
        }
        self.is_sampling = true;
        let first =
            self.closed.iter().position(|page| !page.is_sampled()).unwrap_or(self.closed.len());
        self.closed.drain(first..).collect()
    }

    /// Has pages back that somebody has looked at: before those that came meanwhile.
    pub(super) fn restore_sampled(&mut self, pages: Vec<RawViolationBatch>) {
        self.is_sampling = false;
        let since =
            self.closed.iter().position(|page| !page.is_sampled()).unwrap_or(self.closed.len());
        let came = self.closed.split_off(since);
        self.closed.extend(pages.into_iter().map(RawViolationBatch::into_sampled));
        self.closed.extend(came);
        self.drop_overflow();
    }

    /// What was dropped before somebody looked at it.
    pub(super) fn take_dropped_sample(&mut self) -> Vec<RuleSetSample> {
        self.dropped_sample.as_mut().map(LogSample::take).unwrap_or_default()
    }

    /// A page is on record, or goes back before all others; what has no room any more is dropped, the oldest
    /// first.
    pub(super) fn settle_batch(
        &mut self,
        page: RawViolationBatch,
        recorded: bool,
    ) -> BatchWriteOutcome {
        self.writing = 0;
        if recorded {
            self.written += page.len() as u64;
            self.recycle(page);
            return BatchWriteOutcome::Written;
        }
        (self.waiting, self.bytes) = (self.waiting + page.len(), self.bytes + page.bytes());
        self.closed.push_front(page);
        self.drop_overflow();
        BatchWriteOutcome::Failed
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        while self.drop_oldest() {}
    }

    #[cold]
    fn drop_overflow(&mut self) {
        while !self.is_sampling && self.is_over_capacity() && self.drop_oldest() {}
    }

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        if self.closed.is_empty() {
            self.close_open_batch();
        }
        let Some(oldest) = self.closed.front_mut() else { return false };
        let place = oldest.drop_oldest();
        if let (Some(missed), Some(rules), Some(place)) =
            (&mut self.dropped_sample, oldest.rules(), place)
            && !oldest.is_sampled()
        {
            missed.add_dropped(rules, place);
        }
        self.dropped += 1;
        self.waiting -= 1;
        if oldest.len() == 0 {
            self.bytes -= oldest.bytes();
            if let Some(page) = self.closed.pop_front() {
                self.recycle(page);
            }
        }
        true
    }

    /// Keeps a page to use it again.
    fn recycle(&mut self, mut page: RawViolationBatch) {
        if self.spare.len() < MAX_SPARE_BATCHES {
            page.clear();
            self.spare.push(page);
        }
    }
}
