//! A repository that interferes with edits and otherwise passes every call to an inner repository.
//! It can commit a conflicting edit when changes are read, refuse every commit, and write
//! violations but report a failure.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tidegate_core::time::Timestamp;
use tidegate_rulestore::{
    FleetNode, Repository, RepositoryError, RuleConfig, RuleEdit, VersionChange, VersionInfo,
    WakeReason, open,
};
use tidegate_telemetry::ViolationSink;
use tidegate_telemetry::{ViolationBatch, ViolationPage, ViolationQuery};

type RepositoryFuture<'a, T> = BoxFuture<'a, Result<T, RepositoryError>>;

#[derive(Debug)]
pub(crate) struct ConflictingRepository {
    inner: Arc<dyn Repository>,
    /// Committed once, before the next call that reads changes.
    pub(crate) conflicting_edit: Mutex<Option<RuleEdit>>,
    /// The error of every commit.
    pub(crate) commit_error: Mutex<Option<RepositoryError>>,
    /// Whether the next batch of violations is written but reported as failed.
    pub(crate) lose_next_ack: AtomicBool,
}

impl ConflictingRepository {
    /// Wraps a SQLite file.
    pub(crate) async fn with_sqlite(file: &Path) -> Arc<Self> {
        let inner = open(&format!("sqlite:{}", file.display())).await.expect("a repository");
        Arc::new(Self {
            inner,
            conflicting_edit: Mutex::default(),
            commit_error: Mutex::default(),
            lose_next_ack: AtomicBool::default(),
        })
    }
}

impl Repository for ConflictingRepository {
    fn changes(&self, since: u64, until: u64) -> RepositoryFuture<'_, Vec<VersionChange>> {
        let conflicting_edit = self.conflicting_edit.lock().take();
        async move {
            if let Some(edit) = conflicting_edit {
                self.inner.commit(self.inner.head().await?, &edit).await?;
            }
            self.inner.changes(since, until).await
        }
        .boxed()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn head(&self) -> RepositoryFuture<'_, u64> {
        self.inner.head()
    }

    fn load_config(&self) -> RepositoryFuture<'_, RuleConfig> {
        self.inner.load_config()
    }

    fn history(&self, before: u64, most: u32) -> RepositoryFuture<'_, Vec<VersionInfo>> {
        self.inner.history(before, most)
    }

    fn commit<'a>(&'a self, on: u64, edit: &'a RuleEdit) -> RepositoryFuture<'a, u64> {
        match self.commit_error.lock().clone() {
            Some(why) => async { Err(why) }.boxed(),
            None => self.inner.commit(on, edit),
        }
    }

    fn wait_for_change(&self) -> BoxFuture<'_, WakeReason> {
        self.inner.wait_for_change()
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> RepositoryFuture<'a, ViolationPage> {
        self.inner.violations(query)
    }

    fn record_heartbeat<'a>(
        &'a self,
        node: &'a FleetNode,
        forget: Timestamp,
    ) -> RepositoryFuture<'a, ()> {
        self.inner.record_heartbeat(node, forget)
    }

    fn remove_node<'a>(&'a self, name: &'a str) -> RepositoryFuture<'a, ()> {
        self.inner.remove_node(name)
    }

    fn nodes(&self) -> RepositoryFuture<'_, Vec<FleetNode>> {
        self.inner.nodes()
    }
}

impl ViolationSink for ConflictingRepository {
    type Error = RepositoryError;

    fn record_violations<'a>(&'a self, batch: &'a ViolationBatch) -> RepositoryFuture<'a, ()> {
        let lose_ack = self.lose_next_ack.swap(false, Ordering::SeqCst);
        async move {
            self.inner.record_violations(batch).await?;
            let lost = || RepositoryError::Unavailable("the acknowledgement was lost".to_owned());
            if lose_ack { Err(lost()) } else { Ok(()) }
        }
        .boxed()
    }

    fn prune(&self, before: Timestamp, most: u64) -> RepositoryFuture<'_, u64> {
        self.inner.prune(before, most)
    }
}
