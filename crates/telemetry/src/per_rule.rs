//! Data attached to each active rule, such as its counters. It is created with the rule set,
//! carried over to rules that keep their ID, and dropped with the rule, so it does not grow with
//! edits.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_rules::{ExtensionKey, Rule, RuleSet};

/// Data for one rule set that can be carried over to the next.
pub(crate) trait CarryOver: Send + Sync + Sized + 'static {
    /// The serial of the rule set that it belongs to.
    fn serial(&self) -> u64;

    /// Creates the data for `rules` from the data of the previous rule set.
    fn carry_over(&self, rules: &RuleSet) -> Self;
}

/// Attaches data to each installed rule set.
pub(crate) struct PerRuleSet<T> {
    latest: ArcSwap<T>,
    owner: ExtensionKey,
    /// Held while the data for a rule set is created.
    install_lock: Mutex<()>,
}

impl<T: CarryOver> PerRuleSet<T> {
    pub(crate) fn new(first: T) -> Self {
        Self {
            latest: ArcSwap::from_pointee(first),
            owner: ExtensionKey::new(),
            install_lock: Mutex::new(()),
        }
    }

    /// The data of the latest rule set.
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.latest.load()
    }

    /// The data of a rule set, created if it is missing.
    #[inline]
    pub(crate) fn get_or_install<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        rules.extensions().get(self.owner).or_else(|| self.install(rules))
    }

    /// Creates the data of a newly installed rule set, unless it exists.
    #[cold]
    pub(crate) fn install<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        let _guard = self.install_lock.lock();
        let known = self.latest.load_full();
        if rules.extensions().get::<T>(self.owner).is_none() {
            let next = Arc::new(known.carry_over(rules));
            rules.extensions().insert(self.owner, &next);
            if known.serial() < rules.serial() {
                self.latest.store(next);
            }
        }
        rules.extensions().get(self.owner)
    }
}

/// One entry for each rule of a set, by rule index. Variants share the entry of their rule.
pub(crate) struct PerRuleTable<T>(Box<[Arc<PerRuleEntry<T>>]>);

/// The data of the rule with this ID.
pub(crate) struct PerRuleEntry<T> {
    pub(crate) id: String,
    pub(crate) value: T,
}

impl<T> PerRuleTable<T> {
    /// Builds the table for `rules`. `make` gets the previous value of the rule with the same ID.
    pub(crate) fn carry_over(
        &self,
        rules: &RuleSet,
        mut make: impl FnMut(&Rule, Option<&T>) -> T,
    ) -> Self {
        let known: HashMap<&str, &T> =
            self.0.iter().map(|row| (row.id.as_str(), &row.value)).collect();
        let mut by_id: HashMap<&str, Arc<PerRuleEntry<T>>> = HashMap::new();
        // A rule precedes its variants, so its row is made from the rule itself.
        let rows = rules.rules_and_variants().iter().map(|rule| {
            let row = by_id.entry(rule.id()).or_insert_with(|| {
                let value = make(rule, known.get(rule.id()).copied());
                Arc::new(PerRuleEntry { id: rule.id().to_owned(), value })
            });
            Arc::clone(row)
        });
        Self(rows.collect())
    }

    pub(crate) fn get(&self, index: u32) -> Option<&PerRuleEntry<T>> {
        self.0.get(index as usize).map(|row| &**row)
    }

    /// Each entry once, ordered by ID.
    pub(crate) fn by_id(&self) -> Vec<&Arc<PerRuleEntry<T>>> {
        let mut rows: Vec<&Arc<PerRuleEntry<T>>> = self.0.iter().collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows.dedup_by(|a, b| Arc::ptr_eq(a, b));
        rows
    }
}

impl<T> Default for PerRuleTable<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}
