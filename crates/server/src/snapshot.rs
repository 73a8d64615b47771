//! Saves the counters to a file and restores them after a restart. The store defines the format.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_core::time::Clock;
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_rulestore::file;

use crate::error::CommandError;
use crate::telemetry::ServerEvent;

/// How long reading the file may take.
const READ_DEADLINE: Duration = Duration::from_secs(600);

/// A snapshot file and the secret for hashing its keys.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    secret: Secret,
    /// A larger file cannot be a snapshot of ours.
    max_bytes: u64,
}

impl SnapshotFile {
    /// Names a snapshot file, which need not exist yet.
    pub(crate) fn new(path: PathBuf, secret: Secret, max_bytes: u64) -> Self {
        Self { path, secret, max_bytes }
    }

    /// Restores the counters from the file. If the file is unusable, the reason is logged and the
    /// store stays empty.
    pub(crate) fn restore<C: Clock>(&self, store: &MemoryStore<C>) {
        let path = &self.path;
        let bytes = match file::read_with_deadline(path, self.max_bytes, READ_DEADLINE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return ServerEvent::SnapshotMissing { path }.log();
            }
            Err(error) => return ServerEvent::SnapshotRefused { path, reason: &error }.log(),
        };
        match store.restore_snapshot(&bytes, self.secret) {
            Ok(restored) => ServerEvent::SnapshotRestored { path, restored }.log(),
            Err(error) => ServerEvent::SnapshotRefused { path, reason: &error }.log(),
        }
    }

    /// Writes the store's counters to the file.
    ///
    /// # Errors
    /// When the file cannot be written; the previous file is then still intact.
    pub(crate) fn write<C: Clock>(&self, store: &MemoryStore<C>) -> io::Result<()> {
        file::replace(&self.path, &store.snapshot(self.secret))
    }

    /// Like [`Self::write`], but on a blocking thread, and logs the result.
    ///
    /// # Errors
    /// When the file was not written.
    pub(crate) async fn write_in_background<C: Clock + 'static>(
        &self,
        limiter: &Arc<Limiter<MemoryStore<C>>>,
    ) -> Result<(), CommandError> {
        let (file, limiter) = (self.clone(), Arc::clone(limiter));
        let written = tokio::task::spawn_blocking(move || file.write(limiter.store())).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        let path = &self.path;
        written
            .inspect(|()| ServerEvent::SnapshotWritten { path }.log())
            .inspect_err(|error| ServerEvent::SnapshotFailed { path, reason: error }.log())
            .map_err(|error| {
                let path = path.display();
                CommandError::Failed(format!("cannot save the counters to {path}: {error}"))
            })
    }

    /// Writes the file at the given interval until dropped.
    pub(crate) async fn write_periodically<C: Clock + 'static>(
        self,
        limiter: Arc<Limiter<MemoryStore<C>>>,
        every: Duration,
    ) {
        loop {
            tokio::time::sleep(every).await;
            // The failure was logged; the next interval retries.
            let _ = self.write_in_background(&limiter).await;
        }
    }
}
