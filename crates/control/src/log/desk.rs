//! The queue between decisions and whoever writes violations: pages that are filled, written and used again.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_rules::{Facts, RuleSet};

use super::Tally;
use super::notes::{Page, Refusal};
use super::sample::Sample;

/// The most that wait to be written.
pub const QUEUE: usize = 1 << 16;

/// The most bytes that what waits may take; facts of requests may be long.
const QUEUE_BYTES: usize = 32 << 20;

/// The most that are written at once.
const BATCH: usize = 5_000;

/// The most pages that are kept to be used again.
const SPARE: usize = 4;

/// What came of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// Nothing waits.
    None,
    Written,
    /// It waits again.
    Refused,
}

/// What waits, and what became of the rest: under one lock, so that the sums are right at any time.
#[derive(Default)]
pub(super) struct Desk {
    /// Oldest first; violations are added to the last.
    pages: VecDeque<Page>,
    spare: Vec<Page>,
    waiting: usize,
    bytes: usize,
    /// They are being written.
    writing: usize,
    heard: u64,
    written: u64,
    dropped: u64,
    /// What the log is to say of them.
    pub(super) sample: Sample,
}

impl Desk {
    pub(super) const fn tally(&self) -> Tally {
        let waiting = (self.waiting + self.writing) as u64;
        Tally { heard: self.heard, written: self.written, dropped: self.dropped, waiting }
    }

    /// Jots down one more. Whether it is the only one that waits.
    pub(super) fn put(
        &mut self,
        rules: &Arc<RuleSet>,
        refusal: Refusal,
        facts: &Facts<'_>,
    ) -> bool {
        self.heard += 1;
        self.sample.put(rules, &refusal, facts);
        if !self.pages.back().is_some_and(|page| page.is_for(rules) && page.len() < BATCH) {
            let mut page = self.spare.pop().unwrap_or_default();
            page.begin(rules);
            self.pages.push_back(page);
        }
        if let Some(page) = self.pages.back_mut() {
            let before = page.bytes();
            page.jot(refusal, facts);
            self.bytes += page.bytes() - before;
            self.waiting += 1;
        }
        self.drop_what_has_no_room();
        self.waiting == 1
    }

    /// Takes a page to write it; [`Desk::settle`] hears what came of it.
    pub(super) fn take(&mut self) -> Option<Page> {
        let page = self.pages.pop_front()?;
        self.writing = page.len();
        self.waiting -= page.len();
        self.bytes -= page.bytes();
        Some(page)
    }

    /// A page is on record, or goes back before all others; what has no room any more is dropped, the oldest
    /// first.
    pub(super) fn settle(&mut self, page: Page, recorded: bool) -> Batch {
        self.writing = 0;
        if recorded {
            self.written += page.len() as u64;
            self.keep(page);
            return Batch::Written;
        }
        self.waiting += page.len();
        self.bytes += page.bytes();
        self.pages.push_front(page);
        self.drop_what_has_no_room();
        Batch::Refused
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        self.dropped += self.waiting as u64;
        self.pages.clear();
        (self.waiting, self.bytes) = (0, 0);
    }

    fn drop_what_has_no_room(&mut self) {
        while self.waiting > QUEUE || self.bytes > QUEUE_BYTES {
            let Some(oldest) = self.pages.front_mut() else { return };
            oldest.drop_oldest();
            self.dropped += 1;
            self.waiting -= 1;
            if oldest.len() == 0 {
                self.bytes -= oldest.bytes();
                if let Some(page) = self.pages.pop_front() {
                    self.keep(page);
                }
            }
        }
    }

    /// Keeps a page to use it again.
    fn keep(&mut self, mut page: Page) {
        if self.spare.len() < SPARE {
            page.wipe();
            self.spare.push(page);
        }
    }
}
