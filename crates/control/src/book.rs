//! Everything that rules are made of, at one version.

use std::collections::BTreeMap;

use crate::edit::{Change, Entry};

/// What an entry of a book is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A section of the document that is there once: `identity`, `endpoints`.
    Setting,
    /// A rule, by its id: `{"position": 3, "rule": {…}}`, the rule as a rules document writes it.
    Rule,
    /// What is known of an API key or user, by the fact and the keyed hash of its value.
    Subject,
    /// Other numbers for one key of a rule, by the rule's id and the keyed hash of the key.
    Override,
}

impl Kind {
    /// All kinds, in the order in which they are told.
    pub const ALL: [Self; 4] = [Self::Setting, Self::Rule, Self::Subject, Self::Override];

    /// Its name in a database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Rule => "rule",
            Self::Subject => "subject",
            Self::Override => "override",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One entry with the version that it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it says, as JSON.
    pub value: String,
    /// The version that last changed it.
    pub version: u64,
}

/// Everything that rules are made of, at one version. Version 0 is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    version: u64,
    entries: BTreeMap<(Kind, String), Kept>,
}

impl Book {
    /// The book at a version.
    #[must_use]
    pub fn new(version: u64, entries: impl IntoIterator<Item = (Kind, String, Kept)>) -> Self {
        let entries = entries.into_iter().map(|(kind, id, kept)| ((kind, id), kept)).collect();
        Self { version, entries }
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// One entry.
    #[must_use]
    pub fn get(&self, kind: Kind, id: &str) -> Option<&Kept> {
        self.entries.get(&(kind, id.to_owned()))
    }

    /// All entries of a kind, by id, after an id if one is given.
    pub fn all<'a>(
        &'a self,
        kind: Kind,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a Kept)> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match after {
            Some(id) => Excluded((kind, id.to_owned())),
            None => Included((kind, String::new())),
        };
        let range = self.entries.range((from, Unbounded));
        range.take_while(move |((of, _), _)| *of == kind).map(|((_, id), kept)| (id.as_str(), kept))
    }

    /// The same book with entries as they are to be. Its version stays what it is.
    #[must_use]
    pub fn with(&self, entries: &[Entry]) -> Self {
        let mut next = self.clone();
        for Entry { kind, id, value } in entries {
            let key = (*kind, id.clone());
            match value {
                Some(value) => {
                    let kept = Kept { value: value.clone(), version: self.version };
                    next.entries.insert(key, kept)
                }
                None => next.entries.remove(&key),
            };
        }
        next
    }

    /// Whether the book says what the entries of a document say, so that applying it would change
    /// nothing: the same settings and rules, and its subjects among others.
    #[must_use]
    pub fn says(&self, document: &[Entry]) -> bool {
        let is_there = |entry: &Entry| {
            self.get(entry.kind, &entry.id).map(|kept| &kept.value) == entry.value.as_ref()
        };
        let count = |kind| document.iter().filter(|entry| entry.kind == kind).count();
        document.iter().all(is_there)
            && [Kind::Setting, Kind::Rule]
                .into_iter()
                .all(|kind| self.all(kind, None).count() == count(kind))
    }

    /// Takes over what was changed after this version, in order.
    pub fn follow(&mut self, changes: impl IntoIterator<Item = Change>) {
        for Change { version, kind, id, after, .. } in changes {
            match after {
                Some(value) => self.entries.insert((kind, id), Kept { value, version }),
                None => self.entries.remove(&(kind, id)),
            };
            self.version = self.version.max(version);
        }
    }
}
