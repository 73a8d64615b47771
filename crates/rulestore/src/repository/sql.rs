//! A repository in an SQL database. Its operations are in `read`, `commit`, `violations` and
//! `nodes`.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;
use tidegate_telemetry::ViolationSink;
use tokio::task::JoinSet;

use super::change_notifier::ChangeNotifier;
use super::database::SqlDatabase;
use super::{Repository, RepositoryError, WakeReason, commit, nodes, read, sqlite, violations};
use crate::edit::{RuleEdit, VersionChange, VersionInfo};
use crate::node::FleetNode;
use crate::rule_config::RuleConfig;
use tidegate_telemetry::{ViolationBatch, ViolationPage, ViolationQuery};

/// A repository in an SQL database.
#[derive(Debug)]
pub(super) struct SqlRepository {
    pub(super) name: String,
    pub(super) database: SqlDatabase,
    pub(super) notifier: ChangeNotifier,
    /// Aborted when the repository is dropped.
    pub(super) _tasks: JoinSet<()>,
}

impl SqlRepository {
    /// Poll interval. PostgreSQL notifies every node, so there it is only a safety net. With
    /// SQLite, other processes learn of a change only by polling.
    const fn poll_interval(&self) -> Duration {
        match self.database {
            SqlDatabase::Sqlite { .. } => Duration::from_millis(250),
            SqlDatabase::Postgres(_) => Duration::from_millis(500),
        }
    }
}

impl Repository for SqlRepository {
    fn name(&self) -> &str {
        &self.name
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        Box::pin(read::head(&self.database))
    }

    fn load_config(&self) -> BoxFuture<'_, Result<RuleConfig, RepositoryError>> {
        Box::pin(read::load_config(&self.database))
    }

    fn changes(
        &self,
        since: u64,
        until: u64,
    ) -> BoxFuture<'_, Result<Vec<VersionChange>, RepositoryError>> {
        Box::pin(read::changes(&self.database, since, until))
    }

    fn history(
        &self,
        before: u64,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<VersionInfo>, RepositoryError>> {
        Box::pin(read::history(&self.database, before, limit))
    }

    fn commit<'a>(
        &'a self,
        on: u64,
        edit: &'a RuleEdit,
    ) -> BoxFuture<'a, Result<u64, RepositoryError>> {
        Box::pin(async move {
            let version = commit::commit(&self.database, on, edit).await?;
            if version != on {
                self.notifier.notify();
            }
            Ok(version)
        })
    }

    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason> {
        Box::pin(self.notifier.wait(self.poll_interval()))
    }

    fn violations<'a>(
        &'a self,
        query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<ViolationPage, RepositoryError>> {
        Box::pin(violations::fetch_page(&self.database, query))
    }

    fn record_heartbeat<'a>(
        &'a self,
        node: &'a FleetNode,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        Box::pin(nodes::upsert_node(&self.database, node, forget))
    }

    fn remove_node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), RepositoryError>> {
        Box::pin(nodes::delete_node(&self.database, name))
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, RepositoryError>> {
        Box::pin(nodes::fetch_nodes(&self.database))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), RepositoryError>> {
        Box::pin(sqlite::close(&self.database))
    }
}

impl ViolationSink for SqlRepository {
    type Error = RepositoryError;

    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        Box::pin(violations::record_batch(&self.database, batch))
    }

    fn prune(
        &self,
        before: Timestamp,
        max_rows: u64,
    ) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        Box::pin(violations::prune(&self.database, before, max_rows))
    }
}
