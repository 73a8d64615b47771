//! Reading the file again: only bytes that were not looked at before, unless a person asked.

use std::path::PathBuf;

use tidegate_control::{Book, Entry, Files, Kind};
use tidegate_core::key::Secret;
use tidegate_rules::RuleSet;

use crate::failure::Failure;
use crate::office;
use crate::source::{self, Loaded, Source};

/// What the file says.
pub(super) struct FileRead {
    pub(super) loaded: Loaded,
    pub(super) rules: RuleSet,
    pub(super) entries: Vec<Entry>,
}

/// What was looked at last.
pub(super) struct Seen {
    pub(super) content: Option<u64>,
    pub(super) key_file: Option<PathBuf>,
}

impl FileRead {
    /// Everything that it says.
    pub(super) fn book(&self) -> Book {
        office::unversioned(self.entries.clone())
    }

    /// What it says beside the rules of a table.
    ///
    /// # Errors
    /// When it has rules.
    pub(super) fn beside_table(self, source: &Source) -> Result<Vec<Entry>, Failure> {
        office::without_rules(source, self.entries)
    }
}

/// What a book says beside its rules.
pub(super) fn settings_of(book: &Book) -> Vec<Entry> {
    let kinds = [Kind::Setting, Kind::Subject];
    kinds.into_iter().flat_map(|kind| office::entries_of(book, kind)).collect()
}

/// Reads and compiles the file, and returns the hash of what it read.
pub(super) fn read(
    source: &Source,
    secret: Secret,
    seen: &Seen,
    always: bool,
) -> (Option<u64>, Option<Result<FileRead, Failure>>) {
    let bytes = match source.bytes() {
        Ok(bytes) => bytes,
        // A missing file is reported once, not at every look.
        Err(_) if seen.content.is_none() && !always => return (None, None),
        Err(failure) => return (None, Some(Err(failure))),
    };
    let content = Some(source::content(&bytes, seen.key_file.as_deref()));
    if content == seen.content && !always {
        return (content, None);
    }
    let read = source.load_from(&bytes, Files::All).and_then(|loaded| {
        let rules = loaded.compile(secret)?;
        let entries = loaded.entries(&rules, secret)?;
        Ok(FileRead { loaded, rules, entries })
    });
    (content, Some(read))
}
