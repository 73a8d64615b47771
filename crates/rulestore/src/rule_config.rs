//! The rule configuration: everything that rules are compiled from, at one version.

use std::collections::BTreeMap;

use crate::edit::{EntryUpdate, VersionChange};

/// Kind of a configuration entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// A top-level section of the document, such as `identity` or `endpoints`.
    Setting,
    /// A rule, by id: `{"position": 3, "rule": {…}}`, with the rule as written in a rules document.
    Rule,
    /// An API key or user with its facts, by fact name and keyed hash of the value.
    Subject,
    /// Different limits for one key of a rule, by rule id and keyed hash of the key.
    Override,
}

impl EntryKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 4] = [Self::Setting, Self::Rule, Self::Subject, Self::Override];

    /// Its name in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Rule => "rule",
            Self::Subject => "subject",
            Self::Override => "override",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An entry with the version that last changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The value as JSON.
    pub value: String,
    /// The version that last changed it.
    pub version: u64,
}

/// Everything that rules are compiled from, at one version. Version 0 is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleConfig {
    version: u64,
    entries: BTreeMap<(EntryKind, String), StoredEntry>,
}

impl RuleConfig {
    /// A configuration at a version.
    #[must_use]
    pub fn new(
        version: u64,
        entries: impl IntoIterator<Item = (EntryKind, String, StoredEntry)>,
    ) -> Self {
        let entries = entries.into_iter().map(|(kind, id, entry)| ((kind, id), entry)).collect();
        Self { version, entries }
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// An entry by kind and id.
    #[must_use]
    pub fn get(&self, kind: EntryKind, id: &str) -> Option<&StoredEntry> {
        self.entries.get(&(kind, id.to_owned()))
    }

    /// All entries of a kind, ordered by id, starting after `after` if given.
    pub fn entries<'a>(
        &'a self,
        kind: EntryKind,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a StoredEntry)> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match after {
            Some(id) => Excluded((kind, id.to_owned())),
            None => Included((kind, String::new())),
        };
        let range = self.entries.range((from, Unbounded));
        range
            .take_while(move |((other, _), _)| *other == kind)
            .map(|((_, id), entry)| (id.as_str(), entry))
    }

    /// A copy with updated entries and the same version.
    #[must_use]
    pub fn with_updates(&self, entries: &[EntryUpdate]) -> Self {
        let mut next = self.clone();
        for EntryUpdate { kind, id, value } in entries {
            let key = (*kind, id.clone());
            match value {
                Some(value) => {
                    let entry = StoredEntry { value: value.clone(), version: self.version };
                    next.entries.insert(key, entry)
                }
                None => next.entries.remove(&key),
            };
        }
        next
    }

    /// Whether applying a document with these entries would change nothing: the same settings and
    /// rules, and all its subjects present.
    #[must_use]
    pub fn matches_document(&self, document: &[EntryUpdate]) -> bool {
        let is_present = |entry: &EntryUpdate| {
            self.get(entry.kind, &entry.id).map(|stored| &stored.value) == entry.value.as_ref()
        };
        let count = |kind| document.iter().filter(|entry| entry.kind == kind).count();
        document.iter().all(is_present)
            && [EntryKind::Setting, EntryKind::Rule]
                .into_iter()
                .all(|kind| self.entries(kind, None).count() == count(kind))
    }

    /// Applies the changes of later versions, in order.
    pub fn apply_changes(&mut self, changes: impl IntoIterator<Item = VersionChange>) {
        for VersionChange { version, kind, id, after, .. } in changes {
            match after {
                Some(value) => self.entries.insert((kind, id), StoredEntry { value, version }),
                None => self.entries.remove(&(kind, id)),
            };
            self.version = self.version.max(version);
        }
    }
}
