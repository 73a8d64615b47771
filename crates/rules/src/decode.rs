//! Decodes a YAML tree field by field. Every reader reports an error and continues, so that all
//! errors of a document are reported at once.
//!
//! Public because the server decodes its own section of the document with it.

mod diagnostics;
mod field;
mod fields;
mod nearest;

pub use diagnostics::Diagnostics;
pub use field::Field;
pub use fields::FieldMap;
pub use nearest::nearest;
