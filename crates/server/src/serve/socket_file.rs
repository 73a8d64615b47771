//! The file of a unix socket: made for its callers and nobody else, taken only where nobody listens, and
//! removed by whoever serves last.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::config::SocketMode;

/// How many callers may wait to be accepted. Past that they are not kept waiting, as at a port, but
/// refused.
const BACKLOG: u32 = 4_096;

/// Why a socket cannot be had.
#[derive(Debug)]
pub(super) enum Denied {
    /// Another process listens there.
    Taken,
    /// There is something that is no socket.
    NoSocket,
    /// The system says no.
    System(io::Error),
}

/// A socket's file, removed with the value if it is ours to remove.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number: whoever put another file in its place keeps that.
    id: (u64, u64),
    ours: bool,
}

impl SocketFile {
    /// The file of a socket that was handed to us. It is not ours before we are the ones who serve.
    pub(super) fn inherited(path: &Path) -> Option<Self> {
        let id = id(path).ok()?;
        Some(Self { path: path.to_owned(), id, ours: false })
    }

    /// From now on it is ours.
    pub(super) const fn take_over(&mut self) {
        self.ours = true;
    }

    /// Another process serves there from now on.
    pub(super) const fn leave(&mut self) {
        self.ours = false;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.ours && id(&self.path).is_ok_and(|id| id == self.id) {
            // One that cannot be removed is no harm: nobody listens there, and the next one sees that.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens in a file, in place of one in which nobody listens any more.
///
/// # Errors
/// When somebody does, or the system refuses.
pub(super) async fn listen(
    path: &Path,
    mode: SocketMode,
) -> Result<(SocketFile, UnixListener), Denied> {
    // Two who find the same dead file must not remove each other's new one. Held until we listen.
    let _one_at_a_time = lock(folder(path))?;
    let socket = UnixSocket::new_stream()?;
    if let Err(error) = socket.bind(path) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error.into());
        }
        remove_dead(path).await?;
        socket.bind(path)?;
    }
    let file = SocketFile { path: path.to_owned(), id: id(path)?, ours: true };
    // Before it listens, so that nobody is let in by the permissions that it was made with.
    fs::set_permissions(path, Permissions::from_mode(mode.0))?;
    Ok((file, socket.listen(BACKLOG)?))
}

/// Removes a socket in which nobody listens, and nothing else.
async fn remove_dead(path: &Path) -> Result<(), Denied> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(Denied::NoSocket);
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(fs::remove_file(path)?)
        }
        // Whoever is too busy to let us in, or does not want to, is there.
        Ok(_) | Err(_) => Err(Denied::Taken),
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    file.lock()?;
    Ok(file)
}

/// The folder that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
