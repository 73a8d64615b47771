//! Configurations of other limiters as rules documents, and what of them has no equivalent.
//!
//! Each format has a folder that reads it as it was typed and one that says it in our words. What is wrong in a file is
//! told as for our own documents, all at once; files are read by whoever asks.

mod envoy;
mod gaps;
mod ids;
mod limitador;
mod write;

pub use envoy::import as envoy_ratelimit;
pub use gaps::Gap;
pub use limitador::import as limitador;

/// A file of another limiter.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'s> {
    /// Its name, as the user knows it.
    pub file: &'s str,
    /// Its text.
    pub text: &'s str,
}

/// What came of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A rules document.
    pub document: String,
    /// What it does not say, in the order of the files.
    pub gaps: Vec<Gap>,
}
