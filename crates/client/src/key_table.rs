//! The budgets by key. Their number is bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::host_budget::HostBudget;

/// The key of all calls that find the table full of keys in use.
const OVERFLOW_KEY: &str = "(other)";

/// The budgets by key.
#[derive(Debug)]
pub(crate) struct KeyTable {
    max_keys: usize,
    entries: Mutex<BTreeMap<Arc<str>, KeyEntry>>,
}

#[derive(Debug)]
struct KeyEntry {
    budget: Arc<HostBudget>,
    used_at: Duration,
}

impl KeyTable {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self { max_keys, entries: Mutex::default() }
    }

    /// The budget of a key. A full table drops the budget that was unused for the longest time. If
    /// all are in use, new keys share one budget.
    pub(crate) fn get_or_insert(
        &self,
        key: &str,
        now: Duration,
        create: impl FnOnce(Arc<str>) -> HostBudget,
    ) -> Arc<HostBudget> {
        let mut entries = lock(&self.entries);
        let has_room = entries.contains_key(key)
            || entries.len() < self.max_keys
            || evict_unused(&mut entries);
        let key = if has_room { key } else { OVERFLOW_KEY };
        if let Some(entry) = entries.get_mut(key) {
            entry.used_at = now;
            return Arc::clone(&entry.budget);
        }
        let key: Arc<str> = Arc::from(key);
        let budget = Arc::new(create(Arc::clone(&key)));
        entries.insert(key, KeyEntry { budget: Arc::clone(&budget), used_at: now });
        budget
    }

    pub(crate) fn budgets(&self) -> Vec<Arc<HostBudget>> {
        lock(&self.entries).values().map(|entry| Arc::clone(&entry.budget)).collect()
    }
}

/// Drops the budget that was unused for the longest time; false if all are in use.
fn evict_unused(entries: &mut BTreeMap<Arc<str>, KeyEntry>) -> bool {
    let unused = entries.iter().filter(|(_, entry)| Arc::strong_count(&entry.budget) == 1);
    let oldest = unused.min_by_key(|(_, entry)| entry.used_at).map(|(key, _)| Arc::clone(key));
    oldest.is_some_and(|key| entries.remove(&key).is_some())
}

/// Locks a mutex. A panic of another thread leaves no half-written state here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryPolicy;

    #[test]
    fn full_table_drops_longest_unused_key() {
        let table = KeyTable::new(2);
        let get = |key: &str, secs| {
            table.get_or_insert(key, Duration::from_secs(secs), |key| {
                HostBudget::new(key, Duration::from_secs(20), RetryPolicy::default().new_budget())
            })
        };
        let keys = || {
            let budgets = table.budgets();
            budgets.iter().map(|budget| budget.key().to_owned()).collect::<Vec<_>>()
        };
        let (held, _) = (get("a", 1), get("b", 2));
        assert_eq!(get("c", 3).key(), "c");
        assert_eq!(keys(), ["a", "c"], "`a` is older, but in use");
        let also_held = get("c", 4);
        assert_eq!([get("d", 5).key(), get("e", 6).key()], ["(other)", "(other)"]);
        assert_eq!([held.key(), also_held.key()], ["a", "c"]);
        assert_eq!(keys(), ["(other)", "a", "c"]);
    }
}
