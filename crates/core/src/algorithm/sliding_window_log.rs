//! Sliding window log: every request of the last window with its time and cost.
//!
//! A(W) ≤ L, exactly, for O(L) memory a key. Expired entries count for nothing and are removed when
//! the log is next written.

use std::collections::VecDeque;

use super::{Fit, Gauge};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// One admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was charged.
    pub at: Timestamp,
    /// What it cost.
    pub cost: u64,
}

/// The requests of the last window, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    total: u64,
}

impl Log {
    /// A log of these entries, put in order of time.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        entries.sort_by_key(|entry| entry.at);
        let total = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.cost));
        Self { entries: entries.into(), total }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Bytes that a log of so many entries may grow to; its ring doubles as it grows.
    #[must_use]
    pub const fn worst_case_bytes(entries: u64) -> u64 {
        let entries = if entries < 4 { 4 } else { entries.next_power_of_two() };
        entries * size_of::<Entry>() as u64 + size_of::<Self>() as u64
    }

    pub(super) fn fit(&self, quota: &Quota, cost: u64, now: Timestamp) -> Fit {
        let mut used = self.live_total(quota, now);
        if used + cost <= quota.requests {
            return Fit::NOW;
        }
        for entry in self.live(quota, now) {
            used = used.saturating_sub(entry.cost);
            if used + cost <= quota.requests {
                return Fit::After(entry.at.min(now).plus(quota.window).since(now));
            }
        }
        Fit::NOW
    }

    pub(super) fn gauge(&self, quota: &Quota, now: Timestamp) -> Gauge {
        let lapses = |entry: &Entry| entry.at.min(now).plus(quota.window).since(now);
        Gauge {
            remaining: quota.requests.saturating_sub(self.live_total(quota, now)),
            reset_after: self.live(quota, now).last().map_or(Micros::ZERO, lapses),
            next_after: self.live(quota, now).next().map_or(quota.window, lapses),
        }
    }

    /// Adds a cost at `now`; a log of `most` entries grows no longer.
    pub(super) fn push(&mut self, quota: &Quota, most: u64, cost: u64, now: Timestamp) {
        self.rebase(now);
        while let Some(oldest) = self.entries.front().filter(|entry| expired(entry, quota, now)) {
            self.total = self.total.saturating_sub(oldest.cost);
            self.entries.pop_front();
        }
        let cost = cost.min((2 * quota.requests).saturating_sub(self.total));
        if cost == 0 {
            return;
        }
        self.total += cost;
        // Only forced costs can overfill a log: they join its newest entry, at the present time.
        let full = self.entries.len() as u64 >= most;
        match self.entries.back_mut() {
            Some(newest) if full || newest.at == now => {
                *newest = Entry { at: now, cost: newest.cost + cost };
            }
            _ => self.entries.push_back(Entry { at: now, cost }),
        }
    }

    pub(super) fn take_back(&mut self, cost: u64, charged_at: Timestamp) {
        let Ok(found) = self.entries.binary_search_by_key(&charged_at, |entry| entry.at) else {
            return;
        };
        let back = cost.min(self.entries[found].cost);
        self.entries[found].cost -= back;
        self.total = self.total.saturating_sub(back);
        if self.entries[found].cost == 0 {
            self.entries.remove(found);
        }
    }

    /// Makes one entry at `now` of all that lie ahead of it: no two entries have the same time, so
    /// that a time names one.
    pub(super) fn rebase(&mut self, now: Timestamp) {
        if self.entries.back().is_none_or(|newest| newest.at <= now) {
            return;
        }
        let mut cost = 0;
        while let Some(ahead) = self.entries.pop_back_if(|entry| entry.at >= now) {
            cost += ahead.cost;
        }
        self.entries.push_back(Entry { at: now, cost });
    }

    pub(super) fn fresh_at(&self, window: Micros) -> Timestamp {
        self.entries.back().map_or(Timestamp::EPOCH, |newest| newest.at.plus(window))
    }

    fn live(&self, quota: &Quota, now: Timestamp) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip_while(move |entry| expired(entry, quota, now))
    }

    pub(super) fn live_total(&self, quota: &Quota, now: Timestamp) -> u64 {
        let gone = self.entries.iter().take_while(|entry| expired(entry, quota, now));
        gone.fold(self.total, |left, entry| left.saturating_sub(entry.cost))
    }
}

/// Whether an entry is no longer in (now − W, now].
fn expired(entry: &Entry, quota: &Quota, now: Timestamp) -> bool {
    now.since(entry.at) >= quota.window
}
