//! Usage that local shares admitted and that the store has not counted yet.
//!
//! Each key has one number, not a list of charges: the cost admitted, capped at what the local
//! bucket still shows as used. Usage that has drained or expired is therefore not charged again.
//! The cap is applied when the usage is written to the store. It is also applied before the store
//! itself charges the key, because from then on the local bucket also contains usage that the store
//! has counted.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::time::{Micros, Timestamp};

use crate::node_quotas::NodeQuotas;

/// Maximum number of keys with unsettled usage, which limits the memory used in an outage to about
/// 10 MB. Usage of further keys is lost; each of them is admitted at most one share too much.
const MAX_KEYS: usize = 100_000;

/// The unsettled usage of all keys.
#[derive(Debug, Default)]
pub(crate) struct UnsettledUsage {
    ledger: Mutex<UsageLedger>,
    /// Number of keys with unsettled usage, readable without the lock.
    key_count: AtomicUsize,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct UsageLedger {
    entries: BTreeMap<Fingerprint, UnsettledEntry>,
    /// The next batch starts after this key, so that a key that cannot be settled does not block
    /// others.
    cursor: Fingerprint,
}

/// The unsettled usage of one key.
#[derive(Clone, Debug)]
pub(crate) struct UnsettledEntry {
    /// The shares under which the key was last charged.
    pub(crate) quotas: Arc<NodeQuotas>,
    /// Index of the rule in their rule set.
    pub(crate) rule: u32,
    pub(crate) cost: u64,
    /// Time of the last charge, by the local clock.
    last_charged_at: Timestamp,
}

impl UnsettledUsage {
    /// Records a charge that a share admitted at `now`, by the local clock.
    pub(crate) fn record(
        &self,
        key: Fingerprint,
        rule: u32,
        shares: &Arc<NodeQuotas>,
        cost: u64,
        now: Timestamp,
    ) {
        let mut ledger = self.lock();
        let before = ledger.entries.get(&key).map(|owed| owed.cost);
        if before.is_none() && ledger.entries.len() >= MAX_KEYS {
            self.add_lost(cost);
            return;
        }
        let cost = before.unwrap_or_default().saturating_add(cost);
        let owed = UnsettledEntry { quotas: Arc::clone(shares), rule, cost, last_charged_at: now };
        ledger.entries.insert(key, owed);
        self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
    }

    /// Caps the usage after a charge of `cost` that the store has counted was mirrored to the local
    /// bucket.
    pub(crate) fn cap_to_usage(&self, key: Fingerprint, cost: u64, reading: &Reading) {
        self.update_cost(key, |owed| owed.min(used(reading).saturating_sub(cost)));
    }

    /// Subtracts a refund.
    pub(crate) fn subtract_refund(&self, key: Fingerprint, cost: u64) {
        self.update_cost(key, |owed| owed.saturating_sub(cost));
    }

    /// Removes the usage of a key.
    pub(crate) fn clear(&self, key: Fingerprint) {
        self.update_cost(key, |_| 0);
    }

    /// Whether any key has unsettled usage.
    pub(crate) fn has_any(&self) -> bool {
        self.key_count.load(Ordering::Relaxed) > 0
    }

    /// Returns the next keys with unsettled usage, round-robin.
    pub(crate) fn next_batch(&self, most: usize) -> Vec<(Fingerprint, UnsettledEntry)> {
        let mut ledger = self.lock();
        let UsageLedger { entries: owed, cursor } = &mut *ledger;
        let from = *cursor;
        let later = owed.range((Excluded(from), Unbounded));
        let earlier = owed.range((Unbounded, Included(from)));
        let some: Vec<_> =
            later.chain(earlier).take(most).map(|(key, owed)| (*key, owed.clone())).collect();
        *cursor = some.last().map_or(from, |(key, _)| *key);
        some
    }

    /// Whether a key has unsettled usage.
    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.has_any() && self.lock().entries.contains_key(&key)
    }

    /// Removes and returns a key's usage, capped at what its local bucket shows as used.
    pub(crate) fn take(&self, key: Fingerprint, reading: &Reading) -> Option<UnsettledEntry> {
        let mut ledger = self.lock();
        let taken = ledger.entries.remove(&key);
        self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
        let live = taken.filter(|owed| !owed.has_expired(reading.now))?;
        let cost = live.cost.min(used(reading));
        (cost > 0).then_some(UnsettledEntry { cost, ..live })
    }

    /// Puts back usage that was taken and could not be written; the key may have new usage by now.
    pub(crate) fn restore(&self, key: Fingerprint, taken: &UnsettledEntry) {
        let mut ledger = self.lock();
        let owed = ledger
            .entries
            .entry(key)
            .or_insert_with(|| UnsettledEntry { cost: 0, ..taken.clone() });
        owed.cost = owed.cost.saturating_add(taken.cost);
        self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
    }

    /// Counts usage that the store will never count.
    pub(crate) fn add_lost(&self, cost: u64) {
        self.lost.fetch_add(cost, Ordering::Relaxed);
    }

    /// Total usage that the store will never count, since the process started.
    pub(crate) fn lost_usage(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn update_cost(&self, key: Fingerprint, change: impl FnOnce(u64) -> u64) {
        if !self.has_any() {
            return;
        }
        let mut ledger = self.lock();
        let Some(owed) = ledger.entries.get_mut(&key) else { return };
        owed.cost = change(owed.cost);
        if owed.cost == 0 {
            ledger.entries.remove(&key);
            self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, UsageLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnsettledEntry {
    /// The share that admitted the usage.
    pub(crate) fn share(&self) -> Option<&Policy> {
        self.quotas.policy_for(self.rule)
    }

    /// Whether all of it has left its sliding window. The local bucket alone does not show this: it
    /// may contain later usage that the store has counted. The other algorithms need no such check:
    /// a fixed window's count is 0 when a new window begins, and a bucket in constant use drains
    /// its oldest usage first.
    fn has_expired(&self, now: Timestamp) -> bool {
        let Some(share) = self.share() else { return true };
        let window = share.quota().window;
        match share.algorithm() {
            Algorithm::SlidingWindowLog => now.since(self.last_charged_at) >= window,
            Algorithm::SlidingWindowCounter => {
                now.since(self.last_charged_at) >= Micros::new(window.get().saturating_mul(2))
            }
            _ => false,
        }
    }
}

/// What a counter shows as used, in whole requests, rounded up.
pub(crate) const fn used(reading: &Reading) -> u64 {
    reading.limit.saturating_sub(reading.remaining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::key::Secret;
    use tidegate_rules::{Document, RuleSet};

    #[test]
    fn full_ledger_counts_dropped_usage_as_lost() {
        let source = "rules: [{ id: a, key_by: ip, limit: 10/s, on_fail: local }]";
        let document = Document::parse("rules.yaml", source).unwrap();
        let rules = Arc::new(RuleSet::compile(&document, Secret::UNSET).unwrap());
        let (shares, unsettled) = (Arc::new(NodeQuotas::new(rules, 1)), UnsettledUsage::default());
        let reading = Reading { limit: 10, remaining: 7, ..Reading::default() };
        let key = |lo: usize| Fingerprint { hi: 0, lo: lo as u64 };
        for lo in 0..MAX_KEYS + 5 {
            unsettled.record(key(lo), 0, &shares, 2, reading.now);
        }
        unsettled.record(key(1), 0, &shares, 2, reading.now);
        assert_eq!(unsettled.lost_usage(), 10, "usage of the five keys beyond the maximum");
        let take = |lo| unsettled.take(key(lo), &reading).map(|owed| owed.cost);
        assert_eq!(take(0), Some(2));
        assert_eq!(take(1), Some(3), "capped: 4 charged, 3 still in use");
        assert_eq!(take(MAX_KEYS), None);
        unsettled.record(key(MAX_KEYS), 0, &shares, 2, reading.now);
        assert_eq!(take(MAX_KEYS), Some(2), "a key was removed, so another fits");
    }

    const KEY: Fingerprint = Fingerprint { hi: 1, lo: 2 };

    fn shares(algorithm: &str) -> Arc<NodeQuotas> {
        let source = format!(
            "rules: [{{ id: a, key_by: ip, limit: 10/s using {algorithm}, on_fail: local }}]"
        );
        let document = Document::parse("rules.yaml", &source).unwrap();
        let rules = Arc::new(RuleSet::compile(&document, Secret::UNSET).unwrap());
        Arc::new(NodeQuotas::new(rules, 1))
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + micros)
    }

    fn reading(used: u64, now: Timestamp) -> Reading {
        Reading { limit: 10, remaining: 10 - used, now, ..Reading::default() }
    }

    #[test]
    fn usage_that_left_sliding_window_is_dropped() {
        for (algorithm, last) in
            [("sliding_window_log", 999_999), ("sliding_window_counter", 1_999_999)]
        {
            let (shares, unsettled) = (shares(algorithm), UnsettledUsage::default());
            for (after, expected) in [(last, Some(2)), (last + 1, None)] {
                unsettled.record(KEY, 0, &shares, 2, at(0));
                let taken = unsettled.take(KEY, &reading(5, at(after)));
                assert_eq!(taken.map(|owed| owed.cost), expected, "{algorithm} {after}");
            }
        }
    }

    #[test]
    fn usage_is_capped_when_store_counts_key() {
        let (shares, unsettled) = (shares("token_bucket"), UnsettledUsage::default());
        let other = Fingerprint { hi: 1, lo: 3 };
        unsettled.record(KEY, 0, &shares, 4, at(0));
        assert!(unsettled.contains(KEY) && !unsettled.contains(other));
        // Of the three used, the store has counted one.
        unsettled.cap_to_usage(KEY, 1, &reading(3, at(0)));
        assert_eq!(unsettled.take(KEY, &reading(9, at(0))).map(|owed| owed.cost), Some(2));
        unsettled.record(KEY, 0, &shares, 4, at(0));
        assert!(unsettled.take(KEY, &reading(0, at(0))).is_none(), "all of it has drained");
        assert!(!unsettled.contains(KEY) && !unsettled.has_any());
    }
}
