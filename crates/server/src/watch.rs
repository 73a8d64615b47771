//! Notices that a file changed, however it was changed: written in place, renamed over, or reached
//! through a symlink that was swapped, as Kubernetes does with ConfigMaps.
//!
//! Folders are watched, not the file: a file that was renamed over takes its watch with it. What
//! the change is, the reader of the file finds out. Other files of the folder may be written all the
//! time, and nobody is woken for those.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A change is over when nothing has happened for this long.
const QUIET: Duration = Duration::from_millis(50);

/// A folder that never comes to rest is looked at all the same.
const LONGEST: Duration = Duration::from_millis(500);

/// Some file systems tell nobody of changes, and a watch can get lost with its folder.
const LOOK_ANYWAY: Duration = Duration::from_secs(30);

/// Watches over one file.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    /// What the file and the symlinks that lead to it are called.
    names: Arc<Mutex<BTreeSet<OsString>>>,
    stirred: Arc<Notify>,
}

impl Watch {
    /// Watches over a file; where the system cannot, it is looked at every half minute.
    pub(crate) fn new(path: &Path) -> Self {
        let stirred = Arc::new(Notify::new());
        let names = Arc::<Mutex<BTreeSet<OsString>>>::default();
        let (told, known) = (Arc::clone(&stirred), Arc::clone(&names));
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_change(&event, &known.lock())) {
                told.notify_one();
            }
        });
        let watcher = watcher
            .map_err(|error| tracing::warn!(%error, "cannot watch files; looking now and then"))
            .ok();
        let (path, folders) = (path.to_owned(), BTreeSet::new());
        let mut watch = Self { path, watcher, folders, names, stirred };
        watch.follow();
        watch
    }

    /// Waits until the file may have changed.
    pub(crate) async fn stirred(&mut self) {
        let first = tokio::time::timeout(LOOK_ANYWAY, self.stirred.notified()).await;
        if first.is_ok() {
            // Whoever writes a file does it in several steps; only the last is of interest.
            let settled = async {
                while tokio::time::timeout(QUIET, self.stirred.notified()).await.is_ok() {}
            };
            let _ = tokio::time::timeout(LONGEST, settled).await;
        }
        self.follow();
    }

    /// Watches the folders on the way to the file as they are now: those of the path as it was
    /// named, of every symlink on the way, and of what they lead to.
    fn follow(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let Way { folders: wanted, names } = Way::to(&self.path);
        *self.names.lock() = names;
        for gone in self.folders.difference(&wanted) {
            // It may be gone from the disk as well.
            let _ = watcher.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for folder in wanted {
            // A folder that was removed and made again needs a new watch, so all are renewed.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder);
                }
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "cannot watch a folder");
                }
            }
        }
        self.folders = watched;
    }
}

/// Whether the file may have changed. Reading it is no change, or each look would cause the next; and what
/// is written into another file is none of our business, unlike that one came or went.
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

/// A longer chain of symlinks is a loop.
const MOST_LINKS: usize = 16;

/// What is passed on the way to a file.
struct Way {
    folders: BTreeSet<PathBuf>,
    names: BTreeSet<OsString>,
}

impl Way {
    fn to(path: &Path) -> Self {
        let mut way = Self { folders: BTreeSet::new(), names: BTreeSet::new() };
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
                _ => PathBuf::from("."),
            };
            way.names.extend(path.file_name().map(ToOwned::to_owned));
            let next = std::fs::read_link(&path).ok().map(|target| folder.join(target));
            way.folders.insert(std::fs::canonicalize(&folder).unwrap_or(folder));
            match next {
                Some(next) => path = next,
                None => break,
            }
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{DataChange, RenameMode};

    use super::*;

    #[test]
    fn every_folder_on_the_way_is_watched() {
        let root = std::env::temp_dir().join(format!("tidegate-watch-{}", std::process::id()));
        let deep = root.join("..1/x");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("rules.yaml"), "").unwrap();
        std::os::unix::fs::symlink("..1", root.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/x/rules.yaml", root.join("rules.yaml")).unwrap();
        let found = Way::to(&root.join("rules.yaml")).folders;
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|folder| folder.ends_with(root.file_name().unwrap())));
        assert!(found.iter().any(|folder| folder.ends_with("..1/x")), "{found:?}");
    }
    #[test]
    fn what_is_written_into_other_files_wakes_nobody() {
        let names = BTreeSet::from(["rules.yaml".into()]);
        let told = |kind, name: &str| {
            let event = Event::new(kind).add_path(Path::new("/etc/tidegate").join(name));
            is_change(&event, &names)
        };
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let modified = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        for kind in [written, modified] {
            assert!(told(kind, "rules.yaml"));
            assert!(!told(kind, "access.log"));
        }
        // `..data` of a ConfigMap is not on the way by name.
        assert!(told(renamed, "..data"));
        assert!(!told(EventKind::Access(AccessKind::Open(AccessMode::Any)), "rules.yaml"));
    }
}
