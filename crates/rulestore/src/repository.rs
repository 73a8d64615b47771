//! The [`Repository`] trait: storage of rule configurations, their versions, and violations.

mod change_notifier;
mod commit;
mod database;
mod entry_tables;
mod error;
mod json_chunks;
mod lazy;
mod memory_violations;
mod nodes;
mod open;
mod postgres;
mod postgres_listener;
mod read;
mod read_only;
mod schema;
mod source;
mod sql;
mod sqlite;
mod table;
mod violations;

use std::fmt;

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;
use tidegate_telemetry::ViolationSink;

use crate::edit::{RuleEdit, VersionChange, VersionInfo};
use crate::node::FleetNode;
use crate::rule_config::RuleConfig;
use tidegate_telemetry::{ViolationPage, ViolationQuery};

pub use lazy::LazyRepository;
pub use open::{migrate, open, sqlite_file};
pub use read_only::ReadOnlyRules;
pub use source::RuleSource;
pub use table::{RuleTable, TableColumns, TableRules};

/// Stores rule configurations, their versions, and violations.
///
/// Changes are atomic: a version is recorded with all its changes or not at all.
pub trait Repository: ViolationSink<Error = RepositoryError> + Send + Sync + fmt::Debug {
    /// The database's address, without secrets.
    fn name(&self) -> &str;

    /// The kind of rule source, which decides whether [`Self::commit`] accepts changes.
    fn source(&self) -> RuleSource {
        RuleSource::Database
    }

    /// The latest version; 0 if none has been written.
    fn head(&self) -> BoxFuture<'_, Result<u64, RepositoryError>>;

    /// The whole configuration at its latest version.
    fn load_config(&self) -> BoxFuture<'_, Result<RuleConfig, RepositoryError>>;

    /// All changes in the versions after `since`, up to and including `until`, in order.
    fn changes(
        &self,
        since: u64,
        until: u64,
    ) -> BoxFuture<'_, Result<Vec<VersionChange>, RepositoryError>>;

    /// At most `limit` versions older than `before`, newest first.
    fn history(
        &self,
        before: u64,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<VersionInfo>, RepositoryError>>;

    /// Creates the next version after `on`, atomically. Entries that already have the requested
    /// value are skipped; if none remain, `on` stays the latest version.
    ///
    /// # Errors
    /// [`RepositoryError::VersionConflict`] if `on` is no longer the latest version.
    /// [`RepositoryError::Invalid`] if an entry cannot be stored: a NUL character, a duplicate or
    /// overlong id, invalid JSON, or the same key pattern in two rules.
    fn commit<'a>(
        &'a self,
        on: u64,
        edit: &'a RuleEdit,
    ) -> BoxFuture<'a, Result<u64, RepositoryError>>;

    /// Completes when notified of a new version, or after the poll interval in case a notification
    /// was lost.
    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason>;

    /// A page of violations, newest first.
    fn violations<'a>(
        &'a self,
        query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<ViolationPage, RepositoryError>>;

    /// Records a node's heartbeat, replacing its previous one, and removes nodes last seen before
    /// `forget`.
    fn record_heartbeat<'a>(
        &'a self,
        node: &'a FleetNode,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), RepositoryError>>;

    /// Removes a node.
    fn remove_node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), RepositoryError>>;

    /// All recorded nodes, by name.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, RepositoryError>>;

    /// Closes the repository; for SQLite, this leaves all data in the one database file. No other
    /// method may be called afterwards.
    fn close(&self) -> BoxFuture<'_, Result<(), RepositoryError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Why [`Repository::wait_for_change`] completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// A notification announced a new version.
    Notified,
    /// The poll interval elapsed.
    PollDue,
}

/// Why a repository operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepositoryError {
    /// Another writer created a version in the meantime.
    VersionConflict {
        /// The latest version.
        head: u64,
    },
    /// The entry to store, or the database address, is invalid.
    Invalid(String),
    /// The rules come from a source that is edited elsewhere.
    ReadOnly {
        /// The kind of source.
        source: RuleSource,
        /// Its name.
        name: String,
    },
    /// The database is unreachable or does not answer in time.
    Unavailable(String),
    /// The database content was not written by Tidegate, or by a newer version of it.
    Incompatible(String),
}

impl fmt::Display for RepositoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionConflict { head } => {
                write!(f, "the rules were changed in the meantime; the latest version is {head}")
            }
            Self::Invalid(why) => f.write_str(why),
            Self::ReadOnly { source, name } => f.write_str(&source.advice(name)),
            Self::Unavailable(why) => write!(f, "the rules database is unavailable: {why}"),
            Self::Incompatible(why) => write!(f, "the rules database is incompatible: {why}"),
        }
    }
}

impl std::error::Error for RepositoryError {}
