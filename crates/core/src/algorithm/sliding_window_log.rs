//! Sliding window log: every request of the last window with its time and cost.
//!
//! A(W) ≤ L, exactly, with O(L) memory per key. Expired entries are ignored, and removed by the
//! next write.

use std::collections::VecDeque;

use super::{Fit, Gauge};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// One admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was charged.
    pub at: Timestamp,
    /// Its cost.
    pub cost: u64,
}

/// The requests of the last window, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowLog {
    entries: VecDeque<Entry>,
    total: u64,
}

impl WindowLog {
    /// Makes a log of these entries, sorted by time.
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

    /// The most bytes that a log of `entries` entries can take. Its ring buffer doubles as it
    /// grows.
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
        for entry in self.live_entries(quota, now) {
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
            reset_after: self.live_entries(quota, now).last().map_or(Micros::ZERO, lapses),
            next_after: self.live_entries(quota, now).next().map_or(quota.window, lapses),
        }
    }

    /// Adds a cost at `now`. The log grows to at most `max_entries` entries.
    pub(super) fn push(&mut self, quota: &Quota, max_entries: u64, cost: u64, now: Timestamp) {
        self.rebase(now);
        while let Some(oldest) = self.entries.front().filter(|entry| is_expired(entry, quota, now))
        {
            self.total = self.total.saturating_sub(oldest.cost);
            self.entries.pop_front();
        }
        let cost = cost.min((2 * quota.requests).saturating_sub(self.total));
        if cost == 0 {
            return;
        }
        self.total += cost;
        // Only forced charges can overfill a log. They are merged into its newest entry, which is
        // moved to the present.
        let full = self.entries.len() as u64 >= max_entries;
        match self.entries.back_mut() {
            Some(newest) if full || newest.at == now => {
                *newest = Entry { at: now, cost: newest.cost + cost };
            }
            _ => self.entries.push_back(Entry { at: now, cost }),
        }
    }

    pub(super) fn refund(&mut self, cost: u64, charged_at: Timestamp) {
        let Ok(found) = self.entries.binary_search_by_key(&charged_at, |entry| entry.at) else {
            return;
        };
        let refunded = cost.min(self.entries[found].cost);
        self.entries[found].cost -= refunded;
        self.total = self.total.saturating_sub(refunded);
        if self.entries[found].cost == 0 {
            self.entries.remove(found);
        }
    }

    /// Merges all entries at or after `now` into one entry at `now`. No two entries have the same
    /// time, so that a time identifies one entry.
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

    pub(super) fn expires_at(&self, window: Micros) -> Timestamp {
        self.entries.back().map_or(Timestamp::EPOCH, |newest| newest.at.plus(window))
    }

    fn live_entries(&self, quota: &Quota, now: Timestamp) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip_while(move |entry| is_expired(entry, quota, now))
    }

    pub(super) fn live_total(&self, quota: &Quota, now: Timestamp) -> u64 {
        let expired = self.entries.iter().take_while(|entry| is_expired(entry, quota, now));
        expired.fold(self.total, |left, entry| left.saturating_sub(entry.cost))
    }
}

/// Whether an entry is no longer in (now − W, now].
fn is_expired(entry: &Entry, quota: &Quota, now: Timestamp) -> bool {
    now.since(entry.at) >= quota.window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_case_bytes_match_a_grown_log() {
        let (quota, mut log) = (Quota::new(100, Micros::from_secs(60)), WindowLog::default());
        for count in 1..=100 {
            log.push(&quota, 100, 1, Timestamp::from_micros(count));
            let bytes = log.entries.capacity() * size_of::<Entry>() + size_of::<WindowLog>();
            assert_eq!(WindowLog::worst_case_bytes(count), bytes as u64, "{count} entries");
        }
    }
}
