//! Files that settings and documents name, read so that none of them can hold up the process, and
//! files that are replaced or created whole.
//!
//! Only regular files are read, up to a size, and within a deadline. A device, a pipe or a folder is
//! refused, also behind a symlink. What is in a file is the caller's business.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

/// How long a file system may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// How many reads may wait at once. Each one that a file system does not answer keeps its thread.
const MAX_PENDING: usize = 64;

static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Reads a regular file of at most `max_bytes`, within a few seconds. It blocks the thread for that
/// long, so asynchronous callers call it from a blocking task.
///
/// # Errors
/// When it cannot be read, is no regular file, is too large (`FileTooLarge`), or the file system does
/// not answer in time (`TimedOut`).
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_within(path, max_bytes, DEADLINE)
}

/// The same with another deadline, for files that are large.
///
/// # Errors
/// Those of [`read`].
pub fn read_within(path: &Path, max_bytes: u64, deadline: Duration) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    run_within(deadline, move || read_open(open_regular(&path)?, max_bytes))
}

/// The same for a secret.
///
/// # Errors
/// Those of [`read`], and when every user of the machine may read or change the file
/// (`PermissionDenied`).
pub fn read_private(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    run_within(DEADLINE, move || {
        let (file, metadata) = open_regular(&path)?;
        check_private(&metadata)?;
        read_open((file, metadata), max_bytes)
    })
}

/// Runs work on a thread that is left behind if it does not end in time: nothing else ends a call to
/// a file system that does not answer.
fn run_within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let pending = Pending::begin()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("file".to_owned()).spawn(move || {
        let done = work();
        drop(pending);
        // The caller may have given up.
        let _ = sender.send(done);
    })?;
    receiver.recv_timeout(deadline).unwrap_or_else(|_| {
        let seconds = deadline.as_secs();
        let why = format!("the file system does not answer within {seconds} s");
        Err(io::Error::new(ErrorKind::TimedOut, why))
    })
}

/// Counts a read that has not ended.
struct Pending;

impl Pending {
    fn begin() -> io::Result<Self> {
        let pending = Self;
        if PENDING.fetch_add(1, Ordering::Relaxed) < MAX_PENDING {
            return Ok(pending);
        }
        let why = "too many reads wait for a file system that does not answer";
        Err(io::Error::new(ErrorKind::ResourceBusy, why))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn read_open((file, metadata): (File, Metadata), max_bytes: u64) -> io::Result<Vec<u8>> {
    let length = metadata.len();
    let mut bytes = Vec::new();
    if length <= max_bytes {
        // Files of /proc have no length, and others may grow meanwhile.
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > max_bytes {
        let why = format!("it is larger than {max_bytes} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Opens a regular file and returns it with its metadata. To open a device can have an effect (a terminal is
/// allocated, a watchdog starts), so the path is looked at first. Another file may stand there by the
/// time it is opened, so that does not wait, and the open file is looked at again.
fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    check_regular(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    Ok((file, metadata))
}

/// The group may have access: Kubernetes grants it on volumes with an `fsGroup`.
fn check_private(metadata: &Metadata) -> io::Result<()> {
    match metadata.permissions().mode() & 0o007 {
        0 => Ok(()),
        _ => {
            let why = "every user of this machine has access to it";
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
    }
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Checks that a regular file, or nothing, stands at a path.
///
/// # Errors
/// When something else does (`InvalidInput`), or the path cannot be looked at.
pub(crate) fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) => check_regular(&metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Replaces a file, whole or not at all, by one that only its owner reads. It is written beside,
/// synced and renamed over, and the folder synced: a crash at any instant leaves the old file or the
/// new one, and a failure leaves no other file.
///
/// # Errors
/// When it cannot be written, or a device, a pipe or a folder stands there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (folder, beside) = beside(path, "tmp")?;
    check_replaceable(path)?;
    // A leftover of a crash. Creating a new file then follows no symlink and opens no pipe.
    let _ = fs::remove_file(&beside);
    let replaced = write_new(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced?;
    File::open(folder)?.sync_all()
}

/// Creates a file that only its owner reads, whole or not at all, unless there is one. Of several
/// processes that do so at once, one creates it.
///
/// # Errors
/// When it cannot be written, or something stands there (`AlreadyExists`).
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unique = RandomState::new().hash_one(0_u8);
    let (folder, beside) = beside(path, &format!("{unique:016x}.tmp"))?;
    // Unlike a rename, a link replaces nothing.
    let created = write_new(&beside, bytes).and_then(|()| fs::hard_link(&beside, path));
    let _ = fs::remove_file(&beside);
    created?;
    File::open(folder)?.sync_all()
}

/// The folder of a file, and a path in it that is the file's with one more ending.
fn beside<'p>(path: &'p Path, ending: &str) -> io::Result<(&'p Path, PathBuf)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut beside = name.to_owned();
    beside.push(".");
    beside.push(ending);
    Ok((folder, folder.join(beside)))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("/dev/ptmx", at("device")).unwrap();
        fifo(&at("fifo"));
        symlink("fifo", at("link to fifo")).unwrap();
        symlink("loop", at("loop")).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&at("file"), 5).unwrap(), b"12345");
        assert_eq!(read(&at("link"), 5).unwrap(), b"12345");
        let kind = |path: &Path| read(path, 4).unwrap_err().kind();
        for odd in ["device", "fifo", "link to fifo", "."] {
            assert_eq!(kind(&at(odd)), ErrorKind::InvalidInput, "{odd}");
        }
        assert_eq!(kind(Path::new("/dev/zero")), ErrorKind::InvalidInput);
        assert_eq!(kind(&at("none")), ErrorKind::NotFound);
        for large in [at("file"), at("huge"), "/proc/cpuinfo".into()] {
            assert_eq!(kind(&large), ErrorKind::FileTooLarge, "{large:?}");
        }
        assert!(read(&at("loop"), 4).is_err());
    }

    #[test]
    fn work_that_does_not_end_is_left_behind() {
        let (release, held) = mpsc::channel::<()>();
        let stuck = run_within(Duration::from_millis(1), move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(stuck.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(release);
    }

    #[test]
    fn file_is_replaced_whole_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.snap");
        let files = || fs::read_dir(folder.path()).unwrap().count();
        fs::write(&path, "old").unwrap();
        fifo(&folder.path().join("counters.snap.tmp"));
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(files(), 1, "nothing else is left");
    }

    #[test]
    fn file_is_created_once_for_its_owner_only_and_read_only_while_it_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, b"first").unwrap();
        assert_eq!(create(&path, b"second").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        for (mode, is_private) in [(0o600, true), (0o660, true), (0o604, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match read_private(&path, 5) {
                Ok(bytes) => assert!(is_private && bytes == b"first", "{mode:o}"),
                Err(error) => {
                    assert!(!is_private && error.kind() == ErrorKind::PermissionDenied, "{mode:o}");
                }
            }
        }
    }

    #[test]
    fn failed_replacement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo_path, taken] = ["fifo", "taken"].map(|name| folder.path().join(name));
        fifo(&fifo_path);
        fs::create_dir(&taken).unwrap();
        for path in [&fifo_path, &taken] {
            assert_eq!(replace(path, b"new").unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert!(replace(&folder.path().join("no/such/file"), b"").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
