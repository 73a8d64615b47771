//! Configurations of other limiters as rules documents, and what of them has no equivalent.
//!
//! Each format has a folder that reads it as it was typed and one that says it in our words. What is wrong in a file is
//! told as for our own documents, all at once; files are read by whoever asks.

mod document_writer;
mod envoy;
mod limitador;
mod rule_ids;
mod unsupported;

pub use envoy::import as envoy_ratelimit;
pub use limitador::import as limitador;
pub use unsupported::UnsupportedFeature;

/// A file of another limiter.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFile<'s> {
    /// Its name, as the user knows it.
    pub file: &'s str,
    /// Its text.
    pub text: &'s str,
}

/// What came of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportResult {
    /// A rules document.
    pub document: String,
    /// What it does not say, in the order of the files.
    pub unsupported: Vec<UnsupportedFeature>,
}
