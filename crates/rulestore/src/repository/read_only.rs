//! Rules from a file, or from a table edited by other programs. They have no versions and accept no
//! changes; the latest violations are kept in memory.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};
use parking_lot::Mutex;
use tidegate_core::time::Timestamp;
use tidegate_telemetry::ViolationSink;

use super::memory_violations::InMemoryViolations;
use super::{Repository, RepositoryError, RuleSource, WakeReason};
use crate::edit::{RuleEdit, VersionChange, VersionInfo};
use crate::node::FleetNode;
use crate::rule_config::RuleConfig;
use tidegate_telemetry::{ViolationBatch, ViolationPage, ViolationQuery};

/// Read-only rules, presented as a configuration of version 0.
pub struct ReadOnlyRules {
    source: RuleSource,
    /// Name of the file or table.
    name: String,
    config: Mutex<Arc<RuleConfig>>,
    violations: Mutex<InMemoryViolations>,
}

impl ReadOnlyRules {
    /// The rules of the named file or table.
    #[must_use]
    pub fn new(source: RuleSource, name: &str, config: RuleConfig) -> Self {
        let config = Mutex::new(Arc::new(config));
        Self { source, name: name.to_owned(), config, violations: Mutex::default() }
    }

    /// Replaces the rules after the file or table changed.
    pub fn replace(&self, config: RuleConfig) {
        *self.config.lock() = Arc::new(config);
    }
}

impl Repository for ReadOnlyRules {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> RuleSource {
        self.source
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        ready(Ok(0)).boxed()
    }

    fn load_config(&self) -> BoxFuture<'_, Result<RuleConfig, RepositoryError>> {
        ready(Ok(RuleConfig::clone(&self.config.lock()))).boxed()
    }

    fn changes(
        &self,
        _: u64,
        _: u64,
    ) -> BoxFuture<'_, Result<Vec<VersionChange>, RepositoryError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn history(&self, _: u64, _: u32) -> BoxFuture<'_, Result<Vec<VersionInfo>, RepositoryError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn commit<'a>(
        &'a self,
        _: u64,
        _: &'a RuleEdit,
    ) -> BoxFuture<'a, Result<u64, RepositoryError>> {
        let error = RepositoryError::ReadOnly { source: self.source, name: self.name.clone() };
        ready(Err(error)).boxed()
    }

    // The task that reads the file or table also activates its rules.
    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason> {
        pending().boxed()
    }

    fn violations<'a>(
        &'a self,
        query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<ViolationPage, RepositoryError>> {
        ready(Ok(self.violations.lock().page(query))).boxed()
    }

    // Nodes that share a file or table do not know each other.
    fn record_heartbeat<'a>(
        &'a self,
        _: &'a FleetNode,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        ready(Ok(())).boxed()
    }

    fn remove_node<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), RepositoryError>> {
        ready(Ok(())).boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, RepositoryError>> {
        ready(Ok(Vec::new())).boxed()
    }
}

impl ViolationSink for ReadOnlyRules {
    type Error = RepositoryError;

    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        self.violations.lock().add(batch);
        ready(Ok(())).boxed()
    }

    fn prune(
        &self,
        before: Timestamp,
        max_rows: u64,
    ) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        ready(Ok(self.violations.lock().prune(before, max_rows))).boxed()
    }
}

impl fmt::Debug for ReadOnlyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyRules").field("name", &self.name).finish_non_exhaustive()
    }
}
