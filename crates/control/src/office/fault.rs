//! Edits as those who make them see them: who and why, what they led to, and why nothing was changed.

use std::fmt;
use std::sync::Arc;

use crate::book::Book;
use crate::compile::Flaw;
use crate::repository::Refused;

/// Who wants something changed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
}

/// Why an edit was not made. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such entry.
    Missing(String),
    /// There is such an entry already.
    Exists(String),
    /// The entry is not what the editor saw any more.
    Outdated {
        /// The version that last changed it; nothing when it is gone.
        version: Option<u64>,
    },
    /// The editor does not say what they saw of an entry that is there.
    Unseen,
    /// No rule would be left, and the editor does not confirm that.
    Emptied {
        /// How many there are.
        rules: usize,
    },
    /// The rules would not be valid.
    Invalid(Vec<Flaw>),
    /// The repository did not do it.
    Refused(Refused),
}

/// What an edit led to.
#[derive(Clone, Debug)]
pub struct Done {
    /// The version that holds from now on.
    pub version: u64,
    /// What is in force on this node, at least of that version.
    pub book: Arc<Book>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "there is no {what}"),
            Self::Exists(what) => write!(f, "there is already a {what}"),
            Self::Outdated { version: Some(version) } => {
                write!(f, "somebody changed this meanwhile, in version {version}; look at it again")
            }
            Self::Unseen => f.write_str(
                "this is there already; look at it and send its ETag with If-Match, so that nobody's \
                 change is lost",
            ),
            Self::Outdated { version: None } => f.write_str("somebody removed this meanwhile"),
            Self::Emptied { rules } => write!(
                f,
                "this leaves no rule of {rules}, so every request passes; if that is meant, confirm it \
                 with X-Tidegate-Confirm: empty"
            ),
            Self::Invalid(flaws) => {
                let told: Vec<String> = flaws.iter().map(ToString::to_string).collect();
                f.write_str(&told.join("\n"))
            }
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}
