//! Statement parameters that carry many rows.
//!
//! Rows are sent as a JSON array of arrays. Both SQL dialects unpack it with the same operators, so
//! each statement is written once.

use serde::Serialize;

use super::RepositoryError;

/// A chunk is complete once it reaches this size.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// Splits rows into JSON parameters of bounded size.
pub(super) struct JsonChunks<I>(I);

impl<I: Iterator<Item: Serialize>> JsonChunks<I> {
    pub(super) fn new(rows: impl IntoIterator<IntoIter = I>) -> Self {
        Self(rows.into_iter())
    }
}

impl<I: Iterator<Item: Serialize>> Iterator for JsonChunks<I> {
    type Item = Result<String, RepositoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunk = String::new();
        while chunk.len() < MAX_CHUNK_BYTES
            && let Some(row) = self.0.next()
        {
            chunk.push(if chunk.is_empty() { '[' } else { ',' });
            match serde_json::to_string(&row) {
                Ok(row) => chunk.push_str(&row),
                Err(error) => return Some(Err(RepositoryError::Invalid(error.to_string()))),
            }
        }
        (!chunk.is_empty()).then(|| Ok(chunk + "]"))
    }
}
