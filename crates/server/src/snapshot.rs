//! The counters in a file, so that a restart refills nobody.
//!
//! The file is replaced whole: written beside, synced, renamed over, and the folder synced, so that
//! a crash at any instant leaves the old one or the new one. What is in it, the store knows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_core::time::Clock;
use tidegate_engine::Limiter;
use tidegate_memory::MemoryStore;

use crate::telemetry::Event;

/// A snapshot file and the secret that its keys are hashed under.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    secret: Secret,
}

impl SnapshotFile {
    /// A file that may not be there yet.
    pub(crate) fn new(path: PathBuf, secret: Secret) -> Self {
        Self { path, secret }
    }

    /// Puts the file's counters into the store. Whatever is wrong with the file, the store is then
    /// empty and the reason is logged.
    pub(crate) fn restore<C: Clock>(&self, store: &MemoryStore<C>) {
        let path = &self.path;
        let bytes = match read(path) {
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
        replace(&self.path, &store.snapshot(self.secret))
    }

    /// The same, logged, on a thread where waiting for a disk holds nobody up.
    pub(crate) async fn write_aside<C: Clock + 'static>(
        &self,
        limiter: &Arc<Limiter<MemoryStore<C>>>,
    ) {
        let (file, limiter) = (self.clone(), Arc::clone(limiter));
        let written = tokio::task::spawn_blocking(move || file.write(limiter.store())).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        match written {
            Ok(()) => Event::SnapshotWritten { path: &self.path }.tell(),
            Err(error) => Event::SnapshotFailed { path: &self.path, reason: &error }.tell(),
        }
    }

    /// Writes again and again until it is dropped.
    pub(crate) async fn keep<C: Clock + 'static>(
        self,
        limiter: Arc<Limiter<MemoryStore<C>>>,
        every: Duration,
    ) {
        loop {
            tokio::time::sleep(every).await;
            self.write_aside(&limiter).await;
        }
    }
}

/// Reads a plain file; a pipe or a device would keep us waiting.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    fs::read(path)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut beside = name.to_owned();
    beside.push(".tmp");
    let beside = folder.join(beside);
    // A leftover of a crash. `create_new` then follows nobody's symlink.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_for_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("tidegate-snap-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("counters.snap");
        fs::write(&path, "old").unwrap();
        fs::write(folder.join("counters.snap.tmp"), "left by a crash").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        assert!(replace(&folder.join("no/such/file"), b"").is_err());
        assert!(read(&folder).is_err(), "a folder is no snapshot");
        fs::remove_dir_all(&folder).unwrap();
    }
}
