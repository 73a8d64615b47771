//! Keeps the counters in a file over a restart. The store defines the format.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::file;
use tidegate_core::key::Secret;
use tidegate_core::time::Clock;
use tidegate_engine::Limiter;
use tidegate_memory::MemoryStore;

use crate::failure::Failure;
use crate::telemetry::Event;

/// How long a file of that size may take to be read.
const READ_DEADLINE: Duration = Duration::from_secs(600);

/// A snapshot file and the secret that its keys are hashed under.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    secret: Secret,
    /// A larger file is none that we wrote.
    max_bytes: u64,
}

impl SnapshotFile {
    /// A file that may not be there yet.
    pub(crate) fn new(path: PathBuf, secret: Secret, max_bytes: u64) -> Self {
        Self { path, secret, max_bytes }
    }

    /// Puts the file's counters into the store. Whatever is wrong with the file, the store is then
    /// empty and the reason is logged.
    pub(crate) fn restore<C: Clock>(&self, store: &MemoryStore<C>) {
        let path = &self.path;
        let bytes = match file::read_within(path, self.max_bytes, READ_DEADLINE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Event::SnapshotMissing { path }.tell();
            }
            Err(error) => return Event::SnapshotRefused { path, reason: &error }.tell(),
        };
        match store.restore_snapshot(&bytes, self.secret) {
            Ok(restored) => Event::SnapshotRestored { path, restored }.tell(),
            Err(error) => Event::SnapshotRefused { path, reason: &error }.tell(),
        }
    }

    /// Writes the store's counters.
    ///
    /// # Errors
    /// When the file cannot be written; an older one is then still whole.
    pub(crate) fn write<C: Clock>(&self, store: &MemoryStore<C>) -> io::Result<()> {
        file::replace(&self.path, &store.snapshot(self.secret))
    }

    /// The same, logged, on a thread where waiting for a disk holds nobody up.
    ///
    /// # Errors
    /// When the file was not written.
    pub(crate) async fn write_aside<C: Clock + 'static>(
        &self,
        limiter: &Arc<Limiter<MemoryStore<C>>>,
    ) -> Result<(), Failure> {
        let (file, limiter) = (self.clone(), Arc::clone(limiter));
        let written = tokio::task::spawn_blocking(move || file.write(limiter.store())).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        let path = &self.path;
        written
            .inspect(|()| Event::SnapshotWritten { path }.tell())
            .inspect_err(|error| Event::SnapshotFailed { path, reason: error }.tell())
            .map_err(|error| {
                let path = path.display();
                Failure::CouldNot(format!(
                    "the counters are not kept: cannot write {path}: {error}"
                ))
            })
    }

    /// Writes again and again until it is dropped.
    pub(crate) async fn keep<C: Clock + 'static>(
        self,
        limiter: Arc<Limiter<MemoryStore<C>>>,
        every: Duration,
    ) {
        loop {
            tokio::time::sleep(every).await;
            // It is logged, and tried again.
            let _ = self.write_aside(&limiter).await;
        }
    }
}
