//! Safe file access: reads that cannot block the process, and atomic writes.
//!
//! Only regular files are read, up to a maximum size and within a deadline. Devices, pipes and
//! directories are refused, also behind a symlink. The content is not interpreted here.

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

/// Maximum number of concurrent reads. Each read that the file system never answers occupies a
/// thread.
const MAX_PENDING: usize = 64;

static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Reads a regular file of at most `max_bytes` within a few seconds. Blocks the thread, so async
/// callers must use a blocking task.
///
/// # Errors
/// Fails if the file cannot be read, is not a regular file, is too large (`FileTooLarge`), or if
/// the file system does not answer in time (`TimedOut`).
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_with_deadline(path, max_bytes, DEADLINE)
}

/// Like [`read`], with a different deadline, for large files.
///
/// # Errors
/// Same as [`read`].
pub fn read_with_deadline(path: &Path, max_bytes: u64, deadline: Duration) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    run_with_deadline(deadline, move || read_open(open_regular(&path)?, max_bytes))
}

/// Like [`read`], for a secret.
///
/// # Errors
/// Same as [`read`]; also `PermissionDenied` if all users on the machine can read or change the
/// file.
pub fn read_private(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    run_with_deadline(DEADLINE, move || {
        let (file, metadata) = open_regular(&path)?;
        check_private(&metadata)?;
        read_open((file, metadata), max_bytes)
    })
}

/// Runs `work` on a separate thread and abandons that thread at the deadline: a call to a file
/// system that does not answer cannot be cancelled.
fn run_with_deadline<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let pending = PendingRead::begin()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("file".to_owned()).spawn(move || {
        let done = work();
        drop(pending);
        // The caller may have stopped waiting.
        let _ = sender.send(done);
    })?;
    receiver.recv_timeout(deadline).unwrap_or_else(|_| {
        let seconds = deadline.as_secs();
        let why = format!("the file system did not answer within {seconds} s");
        Err(io::Error::new(ErrorKind::TimedOut, why))
    })
}

/// Counts a read in progress; decrements the count on drop.
struct PendingRead;

impl PendingRead {
    fn begin() -> io::Result<Self> {
        let pending = Self;
        if PENDING.fetch_add(1, Ordering::Relaxed) < MAX_PENDING {
            return Ok(pending);
        }
        let why = "too many reads are waiting for a file system that does not answer";
        Err(io::Error::new(ErrorKind::ResourceBusy, why))
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn read_open((file, metadata): (File, Metadata), max_bytes: u64) -> io::Result<Vec<u8>> {
    let length = metadata.len();
    let mut bytes = Vec::new();
    if length <= max_bytes {
        // Files in /proc report length 0, and others may grow during the read.
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > max_bytes {
        let why = format!("it is larger than {max_bytes} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Opens a regular file and returns it with its metadata.
///
/// The path is checked before opening because opening a device can have side effects (allocating a
/// terminal, starting a watchdog). Another file may replace it in between, so the open does not
/// block and the file is checked again.
fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    check_regular(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    Ok((file, metadata))
}

/// Group access is allowed: Kubernetes grants it on volumes with an `fsGroup`.
fn check_private(metadata: &Metadata) -> io::Result<()> {
    match metadata.permissions().mode() & 0o007 {
        0 => Ok(()),
        _ => {
            let why = "all users on this machine can access it; remove the permissions for others (chmod o-rwx)";
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

/// Checks that a path holds a regular file or does not exist.
///
/// # Errors
/// `InvalidInput` if it is something else; other errors if the path cannot be inspected.
pub(crate) fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) => check_regular(&metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Atomically replaces a file with one that only its owner can read.
///
/// Writes a temporary file, syncs it, renames it over the target and syncs the directory. A crash
/// at any point leaves either the old file or the new one; a failure leaves no temporary file.
///
/// # Errors
/// Fails if the file cannot be written, or if the path is a device, pipe or directory.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (folder, temp) = temp_path(path, "tmp")?;
    check_replaceable(path)?;
    // Remove a leftover from a crash, so that creating the file follows no symlink and opens no
    // pipe.
    let _ = fs::remove_file(&temp);
    let replaced = write_new(&temp, bytes).and_then(|()| fs::rename(&temp, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&temp);
    }
    replaced?;
    File::open(folder)?.sync_all()
}

/// Atomically creates a file that only its owner can read, unless it exists. If several processes
/// try at once, exactly one succeeds.
///
/// # Errors
/// Fails if the file cannot be written, or if the path exists (`AlreadyExists`).
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unique = RandomState::new().hash_one(0_u8);
    let (folder, temp) = temp_path(path, &format!("{unique:016x}.tmp"))?;
    // Unlike a rename, a hard link never replaces a file.
    let created = write_new(&temp, bytes).and_then(|()| fs::hard_link(&temp, path));
    let _ = fs::remove_file(&temp);
    created?;
    File::open(folder)?.sync_all()
}

/// The directory of a file, and a path in it with `ending` appended to the file's name.
fn temp_path<'p>(path: &'p Path, ending: &str) -> io::Result<(&'p Path, PathBuf)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut temp = name.to_owned();
    temp.push(".");
    temp.push(ending);
    Ok((folder, folder.join(temp)))
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
    fn only_small_regular_files_are_read() {
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
    fn stuck_read_times_out() {
        let (release, held) = mpsc::channel::<()>();
        let stuck = run_with_deadline(Duration::from_millis(1), move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(stuck.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(release);
    }

    #[test]
    fn replaced_file_is_atomic_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.snap");
        let files = || fs::read_dir(folder.path()).unwrap().count();
        fs::write(&path, "old").unwrap();
        fifo(&folder.path().join("counters.snap.tmp"));
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(files(), 1, "temporary files are left");
    }

    #[test]
    fn private_file_is_created_once_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, b"first").unwrap();
        assert_eq!(create(&path, b"second").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "temporary files are left");
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
