//! A database that did not answer at startup. It counts as unavailable and is tried again whenever
//! it is used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidegate_core::time::Timestamp;
use tidegate_telemetry::ViolationSink;
use tokio::sync::OnceCell;

use super::open::display_name;
use super::{Repository, RepositoryError, WakeReason, open};
use crate::edit::{RuleEdit, VersionChange, VersionInfo};
use crate::node::FleetNode;
use crate::rule_config::RuleConfig;
use tidegate_telemetry::{ViolationBatch, ViolationPage, ViolationQuery};

/// Pause between connection attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A repository that is opened on first use.
pub struct LazyRepository {
    url: String,
    name: String,
    opened: OnceCell<Arc<dyn Repository>>,
}

impl LazyRepository {
    /// Creates the repository; the address is checked, but not connected to.
    ///
    /// # Errors
    /// Fails if the address is invalid.
    pub fn new(url: &str) -> Result<Self, RepositoryError> {
        Ok(Self { url: url.to_owned(), name: display_name(url)?, opened: OnceCell::new() })
    }

    async fn get_or_open(&self) -> Result<&Arc<dyn Repository>, RepositoryError> {
        self.opened.get_or_try_init(|| open(&self.url)).await
    }
}

impl Repository for LazyRepository {
    fn name(&self) -> &str {
        &self.name
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        async { self.get_or_open().await?.head().await }.boxed()
    }

    fn load_config(&self) -> BoxFuture<'_, Result<RuleConfig, RepositoryError>> {
        async { self.get_or_open().await?.load_config().await }.boxed()
    }

    fn changes(
        &self,
        since: u64,
        until: u64,
    ) -> BoxFuture<'_, Result<Vec<VersionChange>, RepositoryError>> {
        async move { self.get_or_open().await?.changes(since, until).await }.boxed()
    }

    fn history(
        &self,
        before: u64,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<VersionInfo>, RepositoryError>> {
        async move { self.get_or_open().await?.history(before, limit).await }.boxed()
    }

    fn commit<'a>(
        &'a self,
        on: u64,
        edit: &'a RuleEdit,
    ) -> BoxFuture<'a, Result<u64, RepositoryError>> {
        async move { self.get_or_open().await?.commit(on, edit).await }.boxed()
    }

    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason> {
        match self.opened.get() {
            Some(opened) => opened.wait_for_change(),
            None => async {
                tokio::time::sleep(RETRY_PAUSE).await;
                WakeReason::PollDue
            }
            .boxed(),
        }
    }

    fn violations<'a>(
        &'a self,
        query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<ViolationPage, RepositoryError>> {
        async move { self.get_or_open().await?.violations(query).await }.boxed()
    }

    fn record_heartbeat<'a>(
        &'a self,
        node: &'a FleetNode,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        async move { self.get_or_open().await?.record_heartbeat(node, forget).await }.boxed()
    }

    fn remove_node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), RepositoryError>> {
        async move { self.get_or_open().await?.remove_node(name).await }.boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, RepositoryError>> {
        async move { self.get_or_open().await?.nodes().await }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), RepositoryError>> {
        match self.opened.get() {
            Some(opened) => opened.close(),
            None => async { Ok(()) }.boxed(),
        }
    }
}

impl ViolationSink for LazyRepository {
    type Error = RepositoryError;

    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        async move { self.get_or_open().await?.record_violations(batch).await }.boxed()
    }

    fn prune(
        &self,
        before: Timestamp,
        max_rows: u64,
    ) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        async move { self.get_or_open().await?.prune(before, max_rows).await }.boxed()
    }
}

impl fmt::Debug for LazyRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("LazyRepository").field("name", &self.name).finish_non_exhaustive()
    }
}
