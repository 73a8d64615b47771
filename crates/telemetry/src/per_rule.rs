//! What is kept beside each rule in force: made with the rule set, taken over by rules that keep their id, and
//! forgotten with the rule, so that what is kept does not grow with edits.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_rules::{ExtensionKey, Rule, RuleSet};

/// Something that is kept for one rule set and taken over by the next.
pub(crate) trait CarryOver: Send + Sync + Sized + 'static {
    /// Of which rule set it is.
    fn serial(&self) -> u64;

    /// The same for the rules that follow.
    fn carry_over(&self, rules: &RuleSet) -> Self;
}

/// What is kept beside the rules in force.
pub(crate) struct PerRuleSet<T> {
    latest: ArcSwap<T>,
    owner: ExtensionKey,
    /// Only one at a time makes the next.
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

    /// What is kept for the latest rule set.
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.latest.load()
    }

    /// What is kept for a rule set, found beside it.
    #[inline]
    pub(crate) fn get_or_install<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        rules.extensions().get(self.owner).or_else(|| self.install(rules))
    }

    /// A rule set is in force.
    #[cold]
    pub(crate) fn install<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        let _one = self.install_lock.lock();
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

/// One thing for each rule of a set, by its place; variants share their rule's.
pub(crate) struct PerRuleTable<T>(Box<[Arc<PerRuleEntry<T>>]>);

/// What is kept for the rule of an id.
pub(crate) struct PerRuleEntry<T> {
    pub(crate) id: String,
    pub(crate) value: T,
}

impl<T> PerRuleTable<T> {
    /// The rows of the rules that follow. `make` is told what the rule of this id had before.
    pub(crate) fn carry_over(
        &self,
        rules: &RuleSet,
        mut make: impl FnMut(&Rule, Option<&T>) -> T,
    ) -> Self {
        let known: HashMap<&str, &T> =
            self.0.iter().map(|row| (row.id.as_str(), &row.value)).collect();
        let mut by_id: HashMap<&str, Arc<PerRuleEntry<T>>> = HashMap::new();
        // A rule comes before its variants, so that a row is made from the rule itself.
        let rows = rules.rules_and_variants().iter().map(|rule| {
            let row = by_id.entry(rule.id()).or_insert_with(|| {
                let kept = make(rule, known.get(rule.id()).copied());
                Arc::new(PerRuleEntry { id: rule.id().to_owned(), value: kept })
            });
            Arc::clone(row)
        });
        Self(rows.collect())
    }

    pub(crate) fn get(&self, place: u32) -> Option<&PerRuleEntry<T>> {
        self.0.get(place as usize).map(|row| &**row)
    }

    /// Each once, by id.
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
