//! Edits of a rule configuration: as requested, and as recorded in the history.

use serde::Serialize;
use tidegate_core::time::Timestamp;

use crate::rule_config::EntryKind;

/// A requested edit; it becomes one new version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleEdit {
    /// The author's name.
    pub author: String,
    /// The reason given.
    pub reason: String,
    /// Time of the edit.
    pub at: Timestamp,
    /// The entries to change. No two have the same kind and id.
    pub entries: Vec<EntryUpdate>,
}

/// The desired state of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryUpdate {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Id of the entry.
    pub id: String,
    /// The new value as JSON; `None` removes the entry.
    pub value: Option<String>,
}

impl EntryUpdate {
    /// Sets an entry's value.
    pub fn put(kind: EntryKind, id: &str, value: &impl Serialize) -> Self {
        // Cannot fail: map keys are strings, and the writer is memory.
        let value = serde_json::to_string(value).ok();
        Self { kind, id: id.to_owned(), value }
    }

    /// Removes an entry.
    pub fn remove(kind: EntryKind, id: &str) -> Self {
        Self { kind, id: id.to_owned(), value: None }
    }
}

/// One entry changed by a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChange {
    /// The version that changed it.
    pub version: u64,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Id of the entry.
    pub id: String,
    /// The value before; `None` if the entry did not exist.
    pub before: Option<String>,
    /// The value since; `None` if the entry was removed.
    pub after: Option<String>,
}

/// Author, time and reason of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInfo {
    /// The version number.
    pub version: u64,
    /// The author's name.
    pub author: String,
    /// The reason given.
    pub reason: String,
    /// Time of the edit.
    pub at: Timestamp,
    /// Number of entries changed.
    pub changes: u64,
}
