//! Text in quotes, for those who write YAML. When it may stand without them is theirs to know: what is a number to one
//! is text to another.

use std::fmt::Write as _;

/// A text in double quotes, which reads as the same text.
#[must_use]
pub fn quote_scalar(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            // What is not ASCII may be a mark that reorders text, or one that YAML does not keep.
            c if c.is_alphanumeric() => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}
