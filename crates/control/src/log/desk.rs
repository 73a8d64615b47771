//! The queue between decisions and whoever writes violations: pages that are filled, written and used again.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use tidegate_rules::{Facts, RuleSet};

use super::Tally;
use super::notes::{Page, Refusal};
use super::sample::{Sample, Sheet};

/// The most that wait to be written.
pub const QUEUE: usize = 1 << 16;

/// The most bytes that what waits may take; facts of requests may be long.
const QUEUE_BYTES: usize = 32 << 20;

/// The most that are written at once.
pub(super) const BATCH: usize = QUEUE / 4;

/// The most pages that are kept to be used again.
const SPARE: usize = 4;

/// What came of writing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing waits.
    None,
    Written,
    /// It waits again.
    Refused,
}

/// What is due when a violation is jotted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// To wake whoever writes: it is the first that waits, or the last of a batch.
    pub(super) wake: bool,
    /// To show it to somebody who watches.
    pub(super) show: bool,
}

/// What waits, and what became of the rest: under one lock, so that the sums are right at any time.
#[derive(Default)]
// In order: what a decision touches comes first, in one place.
#[repr(C)]
pub(super) struct Desk {
    /// Violations are added to it.
    open: Page,
    /// How many violations are on the pages before it, and the bytes that they take.
    waiting: usize,
    bytes: usize,
    /// Whether somebody watches.
    watched: bool,
    /// Those pages, oldest first.
    shut: VecDeque<Page>,
    spare: Vec<Page>,
    /// How many pages were taken to be written, for the first time.
    taken: u64,
    /// They are being written.
    writing: usize,
    written: u64,
    dropped: u64,
    /// Those that were dropped before somebody looked at them, where somebody looks at them.
    missed: Option<Sample>,
    /// Somebody looks at pages right now.
    looked_at: bool,
}

impl Desk {
    pub(super) const fn tally(&self) -> Tally {
        let Self { written, dropped, .. } = *self;
        let waiting = (self.waiting() + self.writing) as u64;
        Tally { heard: written + dropped + waiting, written, dropped, waiting }
    }

    /// How many wait to be written.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting + self.open.len()
    }

    const fn is_overfull(&self) -> bool {
        self.waiting() > QUEUE || self.bytes + self.open.bytes() > QUEUE_BYTES
    }

    /// Whether violations are to be shown from now on.
    pub(super) const fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// Jots down one more.
    #[inline]
    pub(super) fn put(
        &mut self,
        rules: &Arc<RuleSet>,
        refusal: impl FnOnce() -> Refusal,
        facts: &Facts<'_>,
    ) -> Due {
        if !self.open.is_for(rules) || self.open.len() == BATCH {
            self.turn_over(rules);
        }
        self.open.jot(refusal, facts);
        if self.is_overfull() {
            self.drop_what_has_no_room();
        }
        Due { wake: matches!(self.waiting(), 1 | BATCH), show: self.watched }
    }

    /// Begins a new page, for violations under a rule set.
    #[cold]
    fn turn_over(&mut self, rules: &Arc<RuleSet>) {
        self.shut_open();
        self.open.begin(rules);
    }

    /// Puts the open page to the others; another is open from then on.
    fn shut_open(&mut self) {
        let page = mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        if page.len() == 0 {
            return self.keep(page);
        }
        (self.waiting, self.bytes) = (self.waiting + page.len(), self.bytes + page.bytes());
        self.shut.push_back(page);
    }

    /// Takes a page to write it; [`Desk::settle`] hears what came of it. It has a number from then on, and nothing is
    /// added to it: what comes again under a number is what came before, or less.
    pub(super) fn take(&mut self) -> Option<Page> {
        if self.shut.is_empty() {
            self.shut_open();
        }
        let mut page = self.shut.pop_front()?;
        if page.number() == 0 {
            self.taken += 1;
            page.set_number(self.taken);
        }
        self.writing = page.len();
        (self.waiting, self.bytes) = (self.waiting - page.len(), self.bytes - page.bytes());
        Some(page)
    }

    /// From now on somebody looks at all pages, and hears of what is dropped before.
    pub(super) fn be_looked_at(&mut self) {
        self.missed = Some(Sample::default());
    }

    /// Takes all pages that nobody has looked at; [`Desk::seen`] has them back. Until then nothing is dropped: they are
    /// older than what comes meanwhile.
    pub(super) fn unseen(&mut self) -> Vec<Page> {
        if self.open.len() > 0 {
            self.shut_open();
        }
        self.looked_at = true;
        let first = self.shut.iter().position(|page| !page.is_seen()).unwrap_or(self.shut.len());
        self.shut.drain(first..).collect()
    }

    /// Has pages back that somebody has looked at: before those that came meanwhile.
    pub(super) fn seen(&mut self, pages: Vec<Page>) {
        self.looked_at = false;
        let since = self.shut.iter().position(|page| !page.is_seen()).unwrap_or(self.shut.len());
        let came = self.shut.split_off(since);
        self.shut.extend(pages.into_iter().map(Page::into_seen));
        self.shut.extend(came);
        self.drop_what_has_no_room();
    }

    /// What was dropped before somebody looked at it.
    pub(super) fn missed(&mut self) -> Vec<Sheet> {
        self.missed.as_mut().map(Sample::take).unwrap_or_default()
    }

    /// A page is on record, or goes back before all others; what has no room any more is dropped, the oldest
    /// first.
    pub(super) fn settle(&mut self, page: Page, recorded: bool) -> Outcome {
        self.writing = 0;
        if recorded {
            self.written += page.len() as u64;
            self.keep(page);
            return Outcome::Written;
        }
        (self.waiting, self.bytes) = (self.waiting + page.len(), self.bytes + page.bytes());
        self.shut.push_front(page);
        self.drop_what_has_no_room();
        Outcome::Refused
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        while self.drop_oldest() {}
    }

    #[cold]
    fn drop_what_has_no_room(&mut self) {
        while !self.looked_at && self.is_overfull() && self.drop_oldest() {}
    }

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        if self.shut.is_empty() {
            self.shut_open();
        }
        let Some(oldest) = self.shut.front_mut() else { return false };
        let place = oldest.drop_oldest();
        if let (Some(missed), Some(rules), Some(place)) = (&mut self.missed, oldest.rules(), place)
            && !oldest.is_seen()
        {
            missed.miss(rules, place);
        }
        self.dropped += 1;
        self.waiting -= 1;
        if oldest.len() == 0 {
            self.bytes -= oldest.bytes();
            if let Some(page) = self.shut.pop_front() {
                self.keep(page);
            }
        }
        true
    }

    /// Keeps a page to use it again.
    fn keep(&mut self, mut page: Page) {
        if self.spare.len() < SPARE {
            page.wipe();
            self.spare.push(page);
        }
    }
}
