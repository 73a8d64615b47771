//! What a rule office knows besides the document: subjects and overrides by the hundred thousand, each
//! under a keyed hash, so that nobody's API key stands in a database.

use std::fmt;

use tidegate_core::key::{Fingerprint, KeyHasher, Secret};

/// What is known besides the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalRecords {
    /// Subjects; those of the document go before.
    pub subjects: Vec<SubjectRecord>,
    /// Overrides.
    pub overrides: Vec<OverrideRecord>,
}

/// What is known of an API key or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectRecord {
    /// The fact that identifies it.
    pub fact: String,
    /// The hash of its value, as [`SubjectRecord::hash`] makes it.
    pub hash: Fingerprint,
    /// The facts that it brings.
    pub facts: Vec<(String, String)>,
}

impl SubjectRecord {
    /// The hash that a value of an identifying fact is kept under.
    #[must_use]
    pub fn hash(secret: Secret, fact: &str, value: &str) -> Fingerprint {
        let mut hasher = KeyHasher::new(secret);
        hasher.write_part(b"subject");
        hasher.write_part(fact.as_bytes());
        hasher.write_part(value.as_bytes());
        hasher.finish()
    }
}

/// Other numbers for one key of a rule. Algorithm and window stay the rule's, so that what the key has
/// used stays used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRecord {
    /// The id of the rule.
    pub rule: String,
    /// Whose, as [`RuleSet::override_key`](crate::RuleSet::override_key) tells.
    pub key: Fingerprint,
    /// What the key is allowed instead.
    pub limit: OverrideLimit,
}

/// What an override allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideLimit {
    /// So many requests in the rule's window.
    Requests {
        /// How many.
        requests: u64,
        /// How many at once, of a bucket; as many as `requests` when it is not said.
        burst: Option<u64>,
    },
    /// Everything.
    Unlimited,
    /// Nothing.
    Deny,
}

/// Why a record cannot come into force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The place of the override in its list.
    pub index: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RecordError {}
