//! The confirmation that a change needs which leaves no rule, because every request passes then.

use std::collections::BTreeSet;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use tidegate_edge::problem::Problem;

use super::Asked;
use crate::book::{Book, Kind};
use crate::edit::Entry;
use crate::office::Fault;

/// The header that confirms it.
pub const CONFIRM: HeaderName = HeaderName::from_static("x-tidegate-confirm");

/// What the header says.
pub const EMPTY: HeaderValue = HeaderValue::from_static("empty");

impl Asked<'_> {
    /// Whether the caller confirms that no rule is left.
    pub(super) fn confirms_empty(&self) -> Result<bool, Problem> {
        match self.head.headers.get(&CONFIRM) {
            None => Ok(false),
            Some(value) if *value == EMPTY => Ok(true),
            Some(_) => {
                let detail = "write `empty` to confirm that no rule is left";
                Err(Problem::new(StatusCode::BAD_REQUEST, detail).with_field(CONFIRM.as_str()))
            }
        }
    }
}

/// Refuses entries that leave no rule in a book that has some.
pub(super) fn check_not_emptied(book: &Book, entries: &[Entry]) -> Result<(), Fault> {
    let rules = || book.all(Kind::Rule, None).map(|(id, _)| id);
    let changed = || entries.iter().filter(|entry| entry.kind == Kind::Rule);
    let removed: BTreeSet<&str> = changed().map(|entry| entry.id.as_str()).collect();
    let left = changed().any(|entry| entry.value.is_some())
        || rules().any(|id| !removed.contains(id))
        || removed.is_empty();
    if left { Ok(()) } else { Err(Fault::Emptied { rules: rules().count() }) }
}
