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

use crate::share::Shares;

/// Keys whose debts are remembered. What further keys owe is forgotten, which admits them at most
/// one share more; the number is what an outage may cost in memory (about 10 MB).
const MOST_KEYS: usize = 100_000;

/// All debts.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    ledger: Mutex<Ledger>,
    /// How many keys owe, to be read without the lock.
    keys: AtomicUsize,
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Ledger {
    owed: BTreeMap<Fingerprint, Owed>,
    /// Where the next portion starts after, so that one that cannot be paid holds up no other.
    cursor: Fingerprint,
}

/// What one key owes.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    /// The shares it was last charged under.
    pub(crate) shares: Arc<Shares>,
    /// The rule's place in their rule set.
    pub(crate) rule: u32,
    pub(crate) cost: u64,
    /// When it was last admitted something, on the local clock.
    last: Timestamp,
}

impl Debts {
    /// Adds a charge that a share admitted, at an instant of the local clock.
    pub(crate) fn owe(
        &self,
        key: Fingerprint,
        rule: u32,
        shares: &Arc<Shares>,
        cost: u64,
        now: Timestamp,
    ) {
        let mut ledger = self.lock();
        let before = ledger.owed.get(&key).map(|owed| owed.cost);
        if before.is_none() && ledger.owed.len() >= MOST_KEYS {
            self.forget_cost(cost);
            return;
        }
        let cost = before.unwrap_or_default().saturating_add(cost);
        let owed = Owed { shares: Arc::clone(shares), rule, cost, last: now };
        ledger.owed.insert(key, owed);
        self.keys.store(ledger.owed.len(), Ordering::Relaxed);
    }

    /// The local bucket was charged something that the store knows of.
    pub(crate) fn known(&self, key: Fingerprint, cost: u64, told: &Reading) {
        self.change(key, |owed| owed.min(used(told).saturating_sub(cost)));
    }

    /// So much was given back.
    pub(crate) fn given_back(&self, key: Fingerprint, cost: u64) {
        self.change(key, |owed| owed.saturating_sub(cost));
    }

    /// The key owes nothing.
    pub(crate) fn clear(&self, key: Fingerprint) {
        self.change(key, |_| 0);
    }

    /// Whether anybody owes.
    pub(crate) fn any(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > 0
    }

    /// The next keys that owe, in turn.
    pub(crate) fn some(&self, most: usize) -> Vec<(Fingerprint, Owed)> {
        let mut ledger = self.lock();
        let Ledger { owed, cursor } = &mut *ledger;
        let from = *cursor;
        let later = owed.range((Excluded(from), Unbounded));
        let earlier = owed.range((Unbounded, Included(from)));
        let some: Vec<_> =
            later.chain(earlier).take(most).map(|(key, owed)| (*key, owed.clone())).collect();
        *cursor = some.last().map_or(from, |(key, _)| *key);
        some
    }

    /// Whether a key owes.
    pub(crate) fn has(&self, key: Fingerprint) -> bool {
        self.any() && self.lock().owed.contains_key(&key)
    }

    /// Takes a key's debt out of the books: what it owes of what its local bucket shows as used.
    pub(crate) fn take(&self, key: Fingerprint, told: &Reading) -> Option<Owed> {
        let mut ledger = self.lock();
        let taken = ledger.owed.remove(&key);
        self.keys.store(ledger.owed.len(), Ordering::Relaxed);
        let live = taken.filter(|owed| !owed.is_outlived(told.now))?;
        let cost = live.cost.min(used(told));
        (cost > 0).then_some(Owed { cost, ..live })
    }

    /// Puts a debt back that was taken and could not be paid; the key may owe more by now.
    pub(crate) fn put_back(&self, key: Fingerprint, taken: &Owed) {
        let mut ledger = self.lock();
        let owed = ledger.owed.entry(key).or_insert_with(|| Owed { cost: 0, ..taken.clone() });
        owed.cost = owed.cost.saturating_add(taken.cost);
        self.keys.store(ledger.owed.len(), Ordering::Relaxed);
    }

    /// Counts what the store will never know of.
    pub(crate) fn forget_cost(&self, cost: u64) {
        self.forgotten.fetch_add(cost, Ordering::Relaxed);
    }

    /// What the store will never know of, since the start.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn change(&self, key: Fingerprint, change: impl FnOnce(u64) -> u64) {
        if !self.any() {
            return;
        }
        let mut ledger = self.lock();
        let Some(owed) = ledger.owed.get_mut(&key) else { return };
        owed.cost = change(owed.cost);
        if owed.cost == 0 {
            ledger.owed.remove(&key);
            self.keys.store(ledger.owed.len(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    /// The share that it was admitted on.
    pub(crate) fn share(&self) -> Option<&Policy> {
        self.shares.of(self.rule)
    }

    /// Whether all of it has slid out of its window, though the local bucket may show later usage
    /// that the store knows of. The other algorithms need no such look: the count of a fixed window
    /// is 0 when a new one begins, and a busy bucket drains what is newest last.
    fn is_outlived(&self, now: Timestamp) -> bool {
        let Some(share) = self.share() else { return true };
        let window = share.quota().window;
        match share.algorithm() {
            Algorithm::SlidingWindowLog => now.since(self.last) >= window,
            Algorithm::SlidingWindowCounter => {
                now.since(self.last) >= Micros::new(window.get().saturating_mul(2))
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
    fn no_more_keys_are_remembered_than_there_is_room_for_and_the_rest_is_counted() {
        let source = "rules: [{ id: a, key_by: ip, limit: 10/s, on_fail: local }]";
        let document = Document::parse("rules.yaml", source).unwrap();
        let rules = Arc::new(RuleSet::compile(&document, Secret::UNSET).unwrap());
        let (shares, debts) = (Arc::new(Shares::new(rules, 1)), Debts::default());
        let told = Reading { limit: 10, remaining: 7, ..Reading::default() };
        let key = |lo: usize| Fingerprint { hi: 0, lo: lo as u64 };
        for lo in 0..MOST_KEYS + 5 {
            debts.owe(key(lo), 0, &shares, 2, told.now);
        }
        debts.owe(key(1), 0, &shares, 2, told.now);
        assert_eq!(debts.forgotten(), 10, "five keys too many");
        let take = |lo| debts.take(key(lo), &told).map(|owed| owed.cost);
        assert_eq!(take(0), Some(2));
        assert_eq!(take(1), Some(3), "of 4 that were charged 3 are still in use");
        assert_eq!(take(MOST_KEYS), None);
        debts.owe(key(MOST_KEYS), 0, &shares, 2, told.now);
        assert_eq!(take(MOST_KEYS), Some(2), "there is room again");
    }
}
