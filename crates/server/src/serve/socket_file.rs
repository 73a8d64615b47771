//! Unix socket files: created with restricted permissions, replaced only if no process listens on
//! them, and removed by the last serving process.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::config::SocketMode;

/// Length of the accept queue. Unlike with TCP, connections beyond it are refused at once.
const BACKLOG: u32 = 4_096;

/// Why a socket could not be opened.
#[derive(Debug)]
pub(super) enum SocketFileError {
    /// Another process listens on it.
    Taken,
    /// The path exists and is not a socket.
    NotSocket,
    /// A system call failed.
    System(io::Error),
}

/// A socket file, removed on drop if this process owns it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode number, so that a file that replaced ours is not removed.
    id: (u64, u64),
    is_owned: bool,
}

impl SocketFile {
    /// The file of an inherited socket. This process does not own it until it serves.
    pub(super) fn adopt(path: &Path) -> Option<Self> {
        let id = file_id(path).ok()?;
        Some(Self { path: path.to_owned(), id, is_owned: false })
    }

    /// Makes this process the owner.
    pub(super) const fn claim(&mut self) {
        self.is_owned = true;
    }

    /// Gives up ownership: another process serves on the socket from now on.
    pub(super) const fn release(&mut self) {
        self.is_owned = false;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_owned && file_id(&self.path).is_ok_and(|id| id == self.id) {
            // A leftover file is harmless: no process listens on it, and the next start replaces
            // it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a Unix socket, replacing a stale file.
///
/// # Errors
/// When another process listens on it, or the system refuses.
pub(super) async fn bind_socket(
    path: &Path,
    mode: SocketMode,
) -> Result<(SocketFile, UnixListener), SocketFileError> {
    // Held until we listen, so that two processes that find the same stale file do not remove each
    // other's new one.
    let _lock = lock_folder(parent_folder(path))?;
    let socket = UnixSocket::new_stream()?;
    if let Err(error) = socket.bind(path) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error.into());
        }
        remove_stale(path).await?;
        socket.bind(path)?;
    }
    let file = SocketFile { path: path.to_owned(), id: file_id(path)?, is_owned: true };
    // Set the permissions before listening, so that no client connects under the default ones.
    fs::set_permissions(path, Permissions::from_mode(mode.0))?;
    Ok((file, socket.listen(BACKLOG)?))
}

/// Removes a socket file if no process listens on it.
async fn remove_stale(path: &Path) -> Result<(), SocketFileError> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(SocketFileError::NotSocket);
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(fs::remove_file(path)?)
        }
        // Any other result means that a process is listening, even if it is too busy or refuses
        // access.
        Ok(_) | Err(_) => Err(SocketFileError::Taken),
    }
}

fn lock_folder(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    file.lock()?;
    Ok(file)
}

/// The folder of a file.
pub(super) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl From<io::Error> for SocketFileError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
