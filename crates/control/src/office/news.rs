//! What an office tells the node that it is on: rules to put into force, and what happened.

use futures_util::future::BoxFuture;
use tidegate_rules::RuleSet;

use crate::repository::Refused;

/// Puts rules into force on this node, and hears what became of attempts.
pub trait Desk: Send + Sync {
    /// Puts rules into force.
    ///
    /// # Errors
    /// Why they do not come into force; those before stay.
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>>;

    /// A version came into force, or did not, or nobody knows whether there is one.
    fn hear(&self, news: &News<'_>);
}

/// What happened.
#[derive(Debug)]
pub enum News<'a> {
    /// Rules of a version came into force.
    InForce {
        /// The version.
        version: u64,
    },
    /// A version cannot come into force; the one before stays.
    Faulty {
        /// The version.
        version: u64,
        /// Why not.
        why: &'a str,
    },
    /// The repository does not answer; the rules in force stay.
    Lost {
        /// Why not.
        why: &'a Refused,
    },
    /// The repository answers again.
    Back,
    /// A node that keeps its rules in the same repository is there that was not.
    NodeJoined {
        /// Its name.
        name: &'a str,
    },
    /// Such a node is there no more.
    NodeLeft {
        /// Its name.
        name: &'a str,
        /// Whether it only stopped reporting; otherwise it signed off.
        silent: bool,
    },
    /// The copy for the next start could not be written.
    CopyFailed {
        /// Why not.
        why: &'a std::io::Error,
    },
}
