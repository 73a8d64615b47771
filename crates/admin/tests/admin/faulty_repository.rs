//! A repository that hangs or fails on demand, and records the violations that it receives.

use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tidegate_core::time::Timestamp;
use tidegate_rulestore::{
    FleetNode, Repository, RepositoryError, RuleConfig, RuleEdit, VersionChange, VersionInfo,
    WakeReason,
};
use tidegate_telemetry::ViolationSink;
use tidegate_telemetry::{RuleViolation, ViolationBatch, ViolationPage, ViolationQuery};
use tokio::sync::Notify;

/// The repository's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RepositoryMode {
    Healthy,
    Failing,
    Hanging,
}

#[derive(Debug, Default)]
pub(crate) struct FaultyRepository {
    mode: AtomicU8,
    changed: Notify,
    /// The batches that were written.
    pub(crate) batches: Mutex<Vec<Vec<RuleViolation>>>,
    /// The number of calls to write a batch.
    pub(crate) record_calls: AtomicU8,
}

impl FaultyRepository {
    pub(crate) fn set_mode(&self, mode: RepositoryMode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// All violations that were written, in order.
    pub(crate) fn written(&self) -> Vec<RuleViolation> {
        self.batches.lock().concat()
    }

    async fn wait_or_fail(&self) -> Result<(), RepositoryError> {
        loop {
            let changed = self.changed.notified();
            match self.mode.load(Ordering::SeqCst) {
                mode if mode == RepositoryMode::Healthy as u8 => return Ok(()),
                mode if mode == RepositoryMode::Failing as u8 => return Err(unavailable()),
                _ => changed.await,
            }
        }
    }
}

fn unavailable() -> RepositoryError {
    RepositoryError::Unavailable("as the test wants it".to_owned())
}

impl Repository for FaultyRepository {
    fn name(&self) -> &str {
        "a faulty one"
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| 0) }.boxed()
    }

    fn load_config(&self) -> BoxFuture<'_, Result<RuleConfig, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| RuleConfig::default()) }.boxed()
    }

    fn changes(
        &self,
        _: u64,
        _: u64,
    ) -> BoxFuture<'_, Result<Vec<VersionChange>, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| Vec::new()) }.boxed()
    }

    fn history(&self, _: u64, _: u32) -> BoxFuture<'_, Result<Vec<VersionInfo>, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| Vec::new()) }.boxed()
    }

    fn commit<'a>(
        &'a self,
        on: u64,
        _: &'a RuleEdit,
    ) -> BoxFuture<'a, Result<u64, RepositoryError>> {
        async move { self.wait_or_fail().await.map(|()| on) }.boxed()
    }

    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason> {
        std::future::pending().boxed()
    }

    fn violations<'a>(
        &'a self,
        _: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<ViolationPage, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| ViolationPage::default()) }.boxed()
    }

    fn record_heartbeat<'a>(
        &'a self,
        _: &'a FleetNode,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        self.wait_or_fail().boxed()
    }

    fn remove_node<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), RepositoryError>> {
        self.wait_or_fail().boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| Vec::new()) }.boxed()
    }
}

impl ViolationSink for FaultyRepository {
    type Error = RepositoryError;

    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), RepositoryError>> {
        async move {
            self.record_calls.fetch_add(1, Ordering::SeqCst);
            self.wait_or_fail().await?;
            self.batches.lock().push(batch.violations.clone());
            Ok(())
        }
        .boxed()
    }

    fn prune(&self, _: Timestamp, _: u64) -> BoxFuture<'_, Result<u64, RepositoryError>> {
        async { self.wait_or_fail().await.map(|()| 0) }.boxed()
    }
}
