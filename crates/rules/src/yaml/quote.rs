//! Quotes text for writing YAML. The caller decides whether text needs quotes, because what must be
//! quoted depends on the reader.

use std::fmt::Write as _;

/// The text in double quotes, which parses as the same text.
#[must_use]
pub fn quote_scalar(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            // Escape other characters: they may reorder text, or YAML may not preserve them.
            c if c.is_alphanumeric() => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}
