//! Metadata, results and errors of edits.

use std::fmt;
use std::sync::Arc;

use crate::compile::ValidationError;
use crate::repository::RepositoryError;
use crate::rule_config::RuleConfig;

/// Author of a change and the reason given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeAuthor {
    /// The author's name.
    pub author: String,
    /// The reason given.
    pub reason: String,
}

/// Why an edit was rejected. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The entry does not exist.
    NotFound(String),
    /// The entry already exists.
    AlreadyExists(String),
    /// The entry has changed since the editor read it.
    PreconditionFailed {
        /// The version that last changed it; `None` if it was removed.
        version: Option<u64>,
    },
    /// The entry exists, but the request has no precondition.
    PreconditionRequired,
    /// The edit would remove all rules without confirmation.
    EmptyNotConfirmed {
        /// Current number of rules.
        rules: usize,
    },
    /// The resulting rules are invalid.
    Invalid(Vec<ValidationError>),
    /// The repository rejected the edit.
    Repository(RepositoryError),
}

/// Result of a committed edit.
#[derive(Clone, Debug)]
pub struct CommittedEdit {
    /// The new version.
    pub version: u64,
    /// The active configuration on this node; of that version or a later one.
    pub config: Arc<RuleConfig>,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(what) => write!(f, "there is no {what}"),
            Self::AlreadyExists(what) => write!(f, "there is already a {what}"),
            Self::PreconditionFailed { version: Some(version) } => {
                write!(
                    f,
                    "this was changed in the meantime, in version {version}; reload it and try again"
                )
            }
            Self::PreconditionRequired => f.write_str(
                "this already exists; read it and send its ETag with If-Match, so that no \
                 concurrent change is lost",
            ),
            Self::PreconditionFailed { version: None } => {
                f.write_str("this was removed in the meantime")
            }
            Self::EmptyNotConfirmed { rules } => write!(
                f,
                "this removes all {rules} rules, so every request would pass; to confirm, send \
                 X-Tidegate-Confirm: empty"
            ),
            Self::Invalid(errors) => {
                let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&messages.join("\n"))
            }
            Self::Repository(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EditError {}
