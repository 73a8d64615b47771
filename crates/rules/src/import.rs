//! Converts the configurations of other rate limiters into rules documents, and lists features
//! without an equivalent.
//!
//! Each format has a module that decodes its files and one that translates them into rules. All
//! errors of a file are reported at once, as for rules documents. The caller reads the files.

mod document_writer;
mod envoy;
mod limitador;
mod rule_ids;
mod unsupported;

pub use envoy::import as envoy_ratelimit;
pub use limitador::import as limitador;
pub use unsupported::UnsupportedFeature;

/// A configuration file of another rate limiter.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFile<'s> {
    /// The file name to show to the user.
    pub file: &'s str,
    /// The content.
    pub text: &'s str,
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportResult {
    /// A rules document.
    pub document: String,
    /// Features that the document does not cover, in the order of the files.
    pub unsupported: Vec<UnsupportedFeature>,
}
