//! The rules that ask for a descriptor, as a tree of entries for each domain.
//!
//! A request's descriptor is walked entry by entry. At each the most specific that any rule has at that place is
//! taken: the value itself, else the first glob that fits, else the key alone. There is no going back, and only
//! rules whose last entry is the request's last one are found. So a call costs as much as it has entries.

mod globs;

use std::collections::HashMap;

use crate::condition::{Condition, Descriptor, Test, ValueTest};
use crate::facts::Entry;
use globs::Globs;

/// Rules by domain and descriptor.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    domains: HashMap<Box<str>, Level>,
}

/// The entries that may come next.
#[derive(Debug, Default)]
struct Level {
    keys: HashMap<Box<str>, Values>,
}

/// The values that are told apart under one key.
#[derive(Debug, Default)]
struct Values {
    /// In document order.
    places: Vec<Place>,
    /// Exact values, and globs by their own text: who sends `a*` means that one, whatever else fits.
    exact: HashMap<Box<str>, usize>,
    globs: Globs,
    any: Option<usize>,
}

/// The rules whose descriptor ends here, and what may come after.
#[derive(Debug, Default)]
struct Place {
    rules: Vec<u32>,
    below: Level,
}

impl Descriptors {
    /// Files a rule that asks for a descriptor; any other is not for here.
    pub(crate) fn file(&mut self, rule: u32, conditions: &[Condition]) -> bool {
        let Some((domain, descriptor)) = wanted(conditions) else {
            return false;
        };
        let Some((last, before)) = descriptor.0.split_last() else {
            return false;
        };
        let root = self.domains.entry(domain.into()).or_default();
        let level = before.iter().fold(root, |level, test| &mut level.place(test).below);
        level.place(last).rules.push(rule);
        true
    }

    /// Whether a rule asks for a descriptor of the domain.
    pub(crate) fn names(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The rules of the one place that a descriptor leads to.
    pub(crate) fn find(&self, domain: Option<&str>, entries: &[Entry<'_>]) -> &[u32] {
        self.walk(domain, entries).map_or(&[], |place| &place.rules)
    }

    fn walk(&self, domain: Option<&str>, entries: &[Entry<'_>]) -> Option<&Place> {
        let (last, before) = entries.split_last()?;
        let root = self.domains.get(domain?)?;
        let level = before.iter().try_fold(root, |level, entry| Some(&level.choose(entry)?.below));
        level?.choose(last)
    }
}

/// The one domain and the descriptor that conditions ask for; a checked rule has both or none.
fn wanted(conditions: &[Condition]) -> Option<(&str, &Descriptor)> {
    let descriptor = conditions.iter().find_map(|condition| match &condition.test {
        Test::Descriptor(descriptor) => Some(descriptor),
        _ => None,
    });
    Some((conditions.iter().find_map(Condition::one_domain)?, descriptor?))
}

impl Level {
    fn place(&mut self, test: &crate::condition::EntryTest) -> &mut Place {
        self.keys.entry(test.key.clone()).or_default().place(&test.value)
    }

    fn choose(&self, entry: &Entry<'_>) -> Option<&Place> {
        self.keys.get(&*entry.key)?.choose(&entry.value)
    }
}

impl Values {
    fn place(&mut self, value: &ValueTest) -> &mut Place {
        let next = self.places.len();
        let at = match value {
            ValueTest::Any => *self.any.get_or_insert(next),
            ValueTest::Exact(text) => *self.exact.entry(text.clone()).or_insert(next),
            ValueTest::Glob(glob) => {
                let at = *self.exact.entry(glob.to_string().into()).or_insert(next);
                if at == next {
                    self.globs.add(glob.clone(), next);
                }
                at
            }
        };
        if at == next {
            self.places.push(Place::default());
        }
        &mut self.places[at]
    }

    fn choose(&self, value: &str) -> Option<&Place> {
        let exact = self.exact.get(value).copied();
        let at = exact.or_else(|| self.globs.first(value)).or(self.any)?;
        self.places.get(at)
    }
}

#[cfg(test)]
mod tests;
