//! Detects changes of a file, whether it is written in place, replaced by a rename, or reached
//! through a swapped symlink as with Kubernetes ConfigMaps.
//!
//! It watches folders instead of the file, because a watch on a file is lost when another file is
//! renamed over it. The reader of the file finds out what changed. Writes to other files in the
//! same folder do not wake it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A change is complete when no event has arrived for this long.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Upper bound of the debounce, for folders with constant activity.
const MAX_DEBOUNCE: Duration = Duration::from_millis(500);

/// Fallback poll interval: some file systems report no changes, and removing a folder loses its
/// watch.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Watches one file for changes.
#[derive(Debug)]
pub(crate) struct FileWatcher {
    path: PathBuf,
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    /// Names of the file and of the symlinks that lead to it.
    names: Arc<Mutex<BTreeSet<OsString>>>,
    notifier: Arc<Notify>,
}

impl FileWatcher {
    /// Watches a file. If the system cannot watch files, it is polled every 30 seconds.
    pub(crate) fn new(path: &Path) -> Self {
        let notifier = Arc::new(Notify::new());
        let names = Arc::<Mutex<BTreeSet<OsString>>>::default();
        let (waker, known) = (Arc::clone(&notifier), Arc::clone(&names));
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_change(&event, &known.lock())) {
                waker.notify_one();
            }
        });
        let watcher = watcher
            .map_err(|error| tracing::warn!(%error, "cannot watch files for changes; polling every 30 s instead"))
            .ok();
        let (path, folders) = (path.to_owned(), BTreeSet::new());
        let mut watch = Self { path, watcher, folders, names, notifier };
        watch.update_watches();
        watch
    }

    /// Completes when the file may have changed.
    pub(crate) async fn changed(&mut self) {
        let first = tokio::time::timeout(POLL_INTERVAL, self.notifier.notified()).await;
        if first.is_ok() {
            // A file is written in several steps; wait until the last one is done.
            let settled = async {
                while tokio::time::timeout(DEBOUNCE, self.notifier.notified()).await.is_ok() {}
            };
            let _ = tokio::time::timeout(MAX_DEBOUNCE, settled).await;
        }
        self.update_watches();
    }

    /// Updates the set of watched folders: that of the path as configured, of every symlink on the
    /// way, and of their targets.
    fn update_watches(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let SymlinkChain { folders: current, names } = SymlinkChain::resolve(&self.path);
        *self.names.lock() = names;
        for stale in self.folders.difference(&current) {
            // The folder may no longer exist.
            let _ = watcher.unwatch(stale);
        }
        let mut watched = BTreeSet::new();
        for folder in current {
            // Watch every folder again: one that was removed and recreated has lost its watch.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder);
                }
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "cannot watch folder");
                }
            }
        }
        self.folders = watched;
    }
}

/// Whether an event may mean that the file changed. Reads do not count, or each read would trigger
/// the next. Writes to other files do not count either, but their creation, removal and renaming
/// do, because a symlink may have been swapped.
fn is_change(event: &Event, names: &BTreeSet<OsString>) -> bool {
    let ours = || {
        let name = |path: &PathBuf| path.file_name().is_none_or(|name| names.contains(name));
        event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(name)
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_)) => ours(),
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// Longer symlink chains are treated as loops.
const MAX_SYMLINKS: usize = 16;

/// Folders and names on the symlink path to a file.
struct SymlinkChain {
    folders: BTreeSet<PathBuf>,
    names: BTreeSet<OsString>,
}

impl SymlinkChain {
    fn resolve(path: &Path) -> Self {
        let mut chain = Self { folders: BTreeSet::new(), names: BTreeSet::new() };
        let mut path = path.to_owned();
        for _ in 0..MAX_SYMLINKS {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
                _ => PathBuf::from("."),
            };
            chain.names.extend(path.file_name().map(ToOwned::to_owned));
            let next = std::fs::read_link(&path).ok().map(|target| folder.join(target));
            chain.folders.insert(std::fs::canonicalize(&folder).unwrap_or(folder));
            match next {
                Some(next) => path = next,
                None => break,
            }
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{DataChange, RenameMode};

    use super::*;

    #[test]
    fn every_symlink_folder_is_watched() {
        let root = std::env::temp_dir().join(format!("tidegate-watch-{}", std::process::id()));
        let deep = root.join("..1/x");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("rules.yaml"), "").unwrap();
        std::os::unix::fs::symlink("..1", root.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/x/rules.yaml", root.join("rules.yaml")).unwrap();
        let found = SymlinkChain::resolve(&root.join("rules.yaml")).folders;
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|folder| folder.ends_with(root.file_name().unwrap())));
        assert!(found.iter().any(|folder| folder.ends_with("..1/x")), "{found:?}");
    }
    #[test]
    fn other_file_writes_are_ignored() {
        let names = BTreeSet::from(["rules.yaml".into()]);
        let reported = |kind, name: &str| {
            let event = Event::new(kind).add_path(Path::new("/etc/tidegate").join(name));
            is_change(&event, &names)
        };
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let modified = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        for kind in [written, modified] {
            assert!(reported(kind, "rules.yaml"));
            assert!(!reported(kind, "access.log"));
        }
        // A ConfigMap's `..data` link is not among the names, but renaming it counts.
        assert!(reported(renamed, "..data"));
        assert!(!reported(EventKind::Access(AccessKind::Open(AccessMode::Any)), "rules.yaml"));
    }
}
