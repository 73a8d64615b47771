//! What is kept beside each rule in force: made with the rule set, taken over by rules that keep their id, and
//! forgotten with the rule, so that what is kept does not grow with edits.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_rules::{Owner, Rule, RuleSet};

/// Something that is kept for one rule set and taken over by the next.
pub(crate) trait Follows: Send + Sync + Sized + 'static {
    /// Of which rule set it is.
    fn serial(&self) -> u64;

    /// The same for the rules that follow.
    fn following(&self, rules: &RuleSet) -> Self;
}

/// What is kept beside the rules in force.
pub(crate) struct InForce<T> {
    latest: ArcSwap<T>,
    owner: Owner,
    /// Only one at a time makes the next.
    making: Mutex<()>,
}

impl<T: Follows> InForce<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { latest: ArcSwap::from_pointee(first), owner: Owner::new(), making: Mutex::new(()) }
    }

    /// What is kept for the latest rule set.
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.latest.load()
    }

    /// What is kept for a rule set, found beside it.
    #[inline]
    pub(crate) fn of<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        rules.beside().get(self.owner).or_else(|| self.follow(rules))
    }

    /// A rule set is in force.
    #[cold]
    pub(crate) fn follow<'r>(&self, rules: &'r RuleSet) -> Option<&'r T> {
        let _one = self.making.lock();
        let known = self.latest.load_full();
        if rules.beside().get::<T>(self.owner).is_none() {
            let next = Arc::new(known.following(rules));
            rules.beside().keep(self.owner, &next);
            if known.serial() < rules.serial() {
                self.latest.store(next);
            }
        }
        rules.beside().get(self.owner)
    }
}

/// One thing for each rule of a set, by its place; variants share their rule's.
pub(crate) struct Rows<T>(Box<[Arc<Row<T>>]>);

/// What is kept for the rule of an id.
pub(crate) struct Row<T> {
    pub(crate) id: String,
    pub(crate) kept: T,
}

impl<T> Rows<T> {
    /// The rows of the rules that follow. `make` is told what the rule of this id had before.
    pub(crate) fn following(
        &self,
        rules: &RuleSet,
        mut make: impl FnMut(&Rule, Option<&T>) -> T,
    ) -> Self {
        let known: HashMap<&str, &T> =
            self.0.iter().map(|row| (row.id.as_str(), &row.kept)).collect();
        let mut by_id: HashMap<&str, Arc<Row<T>>> = HashMap::new();
        // A rule comes before its variants, so that a row is made from the rule itself.
        let rows = rules.with_variants().iter().map(|rule| {
            let row = by_id.entry(rule.id()).or_insert_with(|| {
                let kept = make(rule, known.get(rule.id()).copied());
                Arc::new(Row { id: rule.id().to_owned(), kept })
            });
            Arc::clone(row)
        });
        Self(rows.collect())
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Row<T>> {
        self.0.get(place as usize).map(|row| &**row)
    }

    /// Each once, by id.
    pub(crate) fn by_id(&self) -> Vec<&Arc<Row<T>>> {
        let mut rows: Vec<&Arc<Row<T>>> = self.0.iter().collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows.dedup_by(|a, b| Arc::ptr_eq(a, b));
        rows
    }
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}
