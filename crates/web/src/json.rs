//! JSON: a parser that reports which field is wrong, and a writer for hot paths.

mod read;
pub mod write;

pub use read::{JsonObject, JsonRequestError, parse};
