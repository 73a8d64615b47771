//! What was admitted on local shares and the store does not know of yet.
//!
//! A debt is a number a key, not a list of charges: what was admitted, but no more than the local
//! bucket still shows as used, so that usage which has drained or expired is not charged anew. It is
//! cut to that when it is written, and before the store charges the key itself, because from then on
//! the local bucket also shows usage that the store knows of.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::time::{Micros, Timestamp};

use crate::node_quotas::NodeQuotas;

/// Keys whose debts are remembered. What further keys owe is forgotten, which admits them at most
/// one share more; the number is what an outage may cost in memory (about 10 MB).
const MAX_KEYS: usize = 100_000;

/// All debts.
#[derive(Debug, Default)]
pub(crate) struct UnsettledUsage {
    ledger: Mutex<UsageLedger>,
    /// How many keys owe, to be read without the lock.
    key_count: AtomicUsize,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct UsageLedger {
    entries: BTreeMap<Fingerprint, UnsettledEntry>,
    /// Where the next portion starts after, so that one that cannot be paid holds up no other.
    cursor: Fingerprint,
}

/// What one key owes.
#[derive(Clone, Debug)]
pub(crate) struct UnsettledEntry {
    /// The shares it was last charged under.
    pub(crate) quotas: Arc<NodeQuotas>,
    /// The rule's place in their rule set.
    pub(crate) rule: u32,
    pub(crate) cost: u64,
    /// When it was last admitted something, on the local clock.
    last_charged_at: Timestamp,
}

impl UnsettledUsage {
    /// Adds a charge that a share admitted, at an instant of the local clock.
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

    /// The local bucket was charged something that the store knows of.
    pub(crate) fn cap_to_usage(&self, key: Fingerprint, cost: u64, told: &Reading) {
        self.update_cost(key, |owed| owed.min(used(told).saturating_sub(cost)));
    }

    /// So much was given back.
    pub(crate) fn subtract_refund(&self, key: Fingerprint, cost: u64) {
        self.update_cost(key, |owed| owed.saturating_sub(cost));
    }

    /// The key owes nothing.
    pub(crate) fn clear(&self, key: Fingerprint) {
        self.update_cost(key, |_| 0);
    }

    /// Whether anybody owes.
    pub(crate) fn has_any(&self) -> bool {
        self.key_count.load(Ordering::Relaxed) > 0
    }

    /// The next keys that owe, in turn.
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

    /// Whether a key owes.
    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.has_any() && self.lock().entries.contains_key(&key)
    }

    /// Takes a key's debt out of the books: what it owes of what its local bucket shows as used.
    pub(crate) fn take(&self, key: Fingerprint, told: &Reading) -> Option<UnsettledEntry> {
        let mut ledger = self.lock();
        let taken = ledger.entries.remove(&key);
        self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
        let live = taken.filter(|owed| !owed.has_expired(told.now))?;
        let cost = live.cost.min(used(told));
        (cost > 0).then_some(UnsettledEntry { cost, ..live })
    }

    /// Puts a debt back that was taken and could not be paid; the key may owe more by now.
    pub(crate) fn restore(&self, key: Fingerprint, taken: &UnsettledEntry) {
        let mut ledger = self.lock();
        let owed = ledger
            .entries
            .entry(key)
            .or_insert_with(|| UnsettledEntry { cost: 0, ..taken.clone() });
        owed.cost = owed.cost.saturating_add(taken.cost);
        self.key_count.store(ledger.entries.len(), Ordering::Relaxed);
    }

    /// Counts what the store will never know of.
    pub(crate) fn add_lost(&self, cost: u64) {
        self.lost.fetch_add(cost, Ordering::Relaxed);
    }

    /// What the store will never know of, since the start.
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
    /// The share that it was admitted on.
    pub(crate) fn share(&self) -> Option<&Policy> {
        self.quotas.policy_for(self.rule)
    }

    /// Whether all of it has slid out of its window, though the local bucket may show later usage
    /// that the store knows of. The other algorithms need no such look: the count of a fixed window
    /// is 0 when a new one begins, and a busy bucket drains what is newest last.
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

/// What a counter shows as used; part requests count as whole ones.
pub(crate) const fn used(told: &Reading) -> u64 {
    told.limit.saturating_sub(told.remaining)
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
        let (shares, debts) = (Arc::new(NodeQuotas::new(rules, 1)), UnsettledUsage::default());
        let told = Reading { limit: 10, remaining: 7, ..Reading::default() };
        let key = |lo: usize| Fingerprint { hi: 0, lo: lo as u64 };
        for lo in 0..MAX_KEYS + 5 {
            debts.record(key(lo), 0, &shares, 2, told.now);
        }
        debts.record(key(1), 0, &shares, 2, told.now);
        assert_eq!(debts.lost_usage(), 10, "five keys too many");
        let take = |lo| debts.take(key(lo), &told).map(|owed| owed.cost);
        assert_eq!(take(0), Some(2));
        assert_eq!(take(1), Some(3), "of 4 that were charged 3 are still in use");
        assert_eq!(take(MAX_KEYS), None);
        debts.record(key(MAX_KEYS), 0, &shares, 2, told.now);
        assert_eq!(take(MAX_KEYS), Some(2), "there is room again");
    }
}
