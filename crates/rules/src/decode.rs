//! Reading a YAML tree field by field: every reader notes what is wrong and goes on, so that all
//! problems of a document are told at once.
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
