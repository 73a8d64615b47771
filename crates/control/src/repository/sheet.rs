//! Rows by the thousand, as parameters of a statement.
//!
//! They travel as JSON, an array of arrays: both dialects take it apart with the same operators, so
//! that a statement is written once.

use serde::Serialize;

use super::Refused;

/// How large a parameter gets.
const SHEET_BYTES: usize = 1 << 20;

/// Rows as parameters, each of a bounded size.
pub(super) struct Sheets<I>(I);

impl<I: Iterator<Item: Serialize>> Sheets<I> {
    pub(super) fn of(rows: impl IntoIterator<IntoIter = I>) -> Self {
        Self(rows.into_iter())
    }
}

impl<I: Iterator<Item: Serialize>> Iterator for Sheets<I> {
    type Item = Result<String, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut sheet = String::new();
        while sheet.len() < SHEET_BYTES
            && let Some(row) = self.0.next()
        {
            sheet.push(if sheet.is_empty() { '[' } else { ',' });
            match serde_json::to_string(&row) {
                Ok(row) => sheet.push_str(&row),
                Err(error) => return Some(Err(Refused::Unfit(error.to_string()))),
            }
        }
        (!sheet.is_empty()).then(|| Ok(sheet + "]"))
    }
}
