//! Changes of a book: as somebody wants them, and as they are on record.

use serde::Serialize;
use tidegate_core::time::Timestamp;

use crate::book::Kind;

/// What somebody wants changed, as one new version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// What. No two are of the same kind and id.
    pub entries: Vec<Entry>,
}

/// One entry as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is about.
    pub kind: Kind,
    /// Which one.
    pub id: String,
    /// What it is to say, as JSON; nothing when it is to go.
    pub value: Option<String>,
}

impl Entry {
    /// An entry that is to say this.
    pub(crate) fn put(kind: Kind, id: &str, value: &impl Serialize) -> Self {
        // What is written here has text for names and goes into memory: there is nothing that could fail.
        let value = serde_json::to_string(value).ok();
        Self { kind, id: id.to_owned(), value }
    }

    /// An entry that is to go.
    pub(crate) fn remove(kind: Kind, id: &str) -> Self {
        Self { kind, id: id.to_owned(), value: None }
    }
}

/// One entry that a version changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version.
    pub version: u64,
    /// What it is about.
    pub kind: Kind,
    /// Which one.
    pub id: String,
    /// What it said before; nothing when it was not there.
    pub before: Option<String>,
    /// What it says since; nothing when it is gone.
    pub after: Option<String>,
}

/// Who made a version, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The version.
    pub version: u64,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// How many entries it changed.
    pub changes: u64,
}
