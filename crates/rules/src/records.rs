//! Subjects and overrides from the control plane, in addition to those of the document. There may
//! be hundreds of thousands. Each is stored under a keyed hash, so that no API key is in the
//! database.

use std::fmt;

use tidegate_core::key::{Fingerprint, KeyHasher, Secret};

/// Subjects and overrides that are not in the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalRecords {
    /// Subjects; those of the document take precedence.
    pub subjects: Vec<SubjectRecord>,
    /// Overrides.
    pub overrides: Vec<OverrideRecord>,
}

/// The facts of an API key or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectRecord {
    /// The fact that identifies it.
    pub fact: String,
    /// The hash of its value, from [`SubjectRecord::hash`].
    pub hash: Fingerprint,
    /// The facts that requests of this subject receive.
    pub facts: Vec<(String, String)>,
}

impl SubjectRecord {
    /// The hash under which the value of an identifying fact is stored.
    #[must_use]
    pub fn hash(secret: Secret, fact: &str, value: &str) -> Fingerprint {
        let mut hasher = KeyHasher::new(secret);
        hasher.write_part(b"subject");
        hasher.write_part(fact.as_bytes());
        hasher.write_part(value.as_bytes());
        hasher.finish()
    }
}

/// A different limit for one key of a rule. The rule's algorithm and window stay, so that the key's
/// usage is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRecord {
    /// The id of the rule.
    pub rule: String,
    /// The key, from [`RuleSet::override_key`](crate::RuleSet::override_key).
    pub key: Fingerprint,
    /// The limit for the key.
    pub limit: OverrideLimit,
}

/// The limit of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideLimit {
    /// A number of requests in the rule's window.
    Requests {
        /// Requests per window.
        requests: u64,
        /// Burst of a bucket; `requests` if `None`.
        burst: Option<u64>,
    },
    /// No limit.
    Unlimited,
    /// Refuse all requests.
    Deny,
}

/// Why a record cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The index of the override in its list.
    pub index: usize,
    /// The reason.
    pub message: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RecordError {}
