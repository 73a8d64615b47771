//! The interface between a [`RuleManager`](super::RuleManager) and its node: rule sets to activate,
//! and events.

use futures_util::future::BoxFuture;
use tidegate_rules::RuleSet;

use crate::repository::RepositoryError;

/// Activates rule sets on this node and receives sync events.
pub trait RuleSink: Send + Sync {
    /// Activates a rule set.
    ///
    /// # Errors
    /// The reason why the rules were not activated; the previous ones stay active.
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>>;

    /// Called for every sync event.
    fn on_event(&self, event: &SyncEvent<'_>);
}

/// An event of the rule synchronisation.
#[derive(Debug)]
pub enum SyncEvent<'a> {
    /// A version was activated.
    Installed {
        /// The version.
        version: u64,
    },
    /// A version could not be activated; the previous one stays active.
    InstallFailed {
        /// The version.
        version: u64,
        /// The reason.
        why: &'a str,
    },
    /// The repository does not answer; the active rules stay.
    RepositoryLost {
        /// The reason.
        why: &'a RepositoryError,
    },
    /// The repository answers again.
    RepositoryRestored,
    /// A node joined the fleet that shares this repository.
    NodeJoined {
        /// Its name.
        name: &'a str,
    },
    /// A node left the fleet.
    NodeLeft {
        /// Its name.
        name: &'a str,
        /// Whether it only stopped sending heartbeats; otherwise it deregistered.
        silent: bool,
    },
    /// The local copy for the next start could not be written.
    CacheWriteFailed {
        /// The reason.
        why: &'a std::io::Error,
    },
}
