//! Restart without losing requests. A new process inherits the listening sockets. Once it serves,
//! it stops the old process with SIGTERM, and the old one finishes its in-flight requests.
//!
//! Two processes that listen side by side with SO_REUSEPORT lose connections when the first one
//! closes its socket; a socket that is handed over does not.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use super::bind::OpenedListener;
use super::inherited_sockets::{FD_COUNT_ENV, FD_NAMES_ENV, OWNER_PID_ENV, SOCKET_FILES_ENV};
use super::listeners::ListenerKind;

/// Holds the predecessor's process id for the successor.
const PREDECESSOR_ENV: &str = "TIDEGATE_PREDECESSOR";

/// The first inherited file descriptor (sd_listen_fds).
const FIRST_FD: i32 = 3;

/// Everything needed to start a successor.
#[derive(Debug)]
pub(super) struct ProcessHandover {
    program: PathBuf,
    args: Vec<OsString>,
    sockets: Vec<(ListenerKind, OwnedFd)>,
    /// The listeners whose socket files the last serving process must remove.
    files: Vec<&'static str>,
}

impl ProcessHandover {
    /// Remembers the program as it was invoked. The file, or the link to it, may be replaced by a
    /// new version later.
    pub(super) fn new() -> io::Result<Self> {
        let program = invoked_path(std::env::current_exe()?);
        let args = std::env::args_os().skip(1).collect();
        Ok(Self { program, args, sockets: Vec::new(), files: Vec::new() })
    }

    /// Keeps a duplicate of a listener's socket.
    pub(super) fn add_socket(&mut self, listener: &OpenedListener) -> io::Result<()> {
        self.sockets.push((listener.kind, listener.listener.as_fd().try_clone_to_owned()?));
        self.files.extend(listener.file.as_ref().map(|_| listener.kind.name()));
        Ok(())
    }

    /// Starts a process with the same arguments and sockets.
    pub(super) fn spawn_successor(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        let names: Vec<&str> = self.sockets.iter().map(|(kind, _)| kind.name()).collect();
        command
            .args(&self.args)
            .env(FD_COUNT_ENV, names.len().to_string())
            .env(FD_NAMES_ENV, names.join(":"))
            .env(SOCKET_FILES_ENV, self.files.join(":"))
            .env(PREDECESSOR_ENV, getpid().as_raw_nonzero().to_string())
            .env_remove(OWNER_PID_ENV);
        let mappings = (FIRST_FD..).zip(&self.sockets).map(|(child_fd, (_, socket))| {
            Ok(FdMapping { parent_fd: socket.try_clone()?, child_fd })
        });
        let mappings = mappings.collect::<io::Result<Vec<_>>>()?;
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        command.spawn()
    }
}

/// Returns the path under which the program was invoked, if it leads to `program`. A symlink is
/// kept as a symlink.
fn invoked_path(program: PathBuf) -> PathBuf {
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut names: Vec<PathBuf> = match name.components().count() {
        0 => Vec::new(),
        1 => std::env::split_paths(&folders).map(|folder| folder.join(&name)).collect(),
        _ => vec![name],
    };
    names.retain(|name| name.canonicalize().is_ok_and(|found| found == program));
    names.into_iter().find_map(|name| std::path::absolute(name).ok()).unwrap_or(program)
}

/// Returns the successor unless it has exited.
pub(super) fn if_running(mut successor: Child) -> Option<Child> {
    match successor.try_wait() {
        Ok(None) => Some(successor),
        Ok(Some(_)) | Err(_) => None,
    }
}

/// Stops the predecessor, if there is one, now that this process serves its listeners.
pub(super) fn stop_predecessor() -> Option<Pid> {
    let predecessor = std::env::var(PREDECESSOR_ENV).ok()?.parse().ok().and_then(Pid::from_raw)?;
    // If the predecessor has exited, its process id may belong to another process, which is not our
    // parent.
    if getppid() != Some(predecessor) {
        return None;
    }
    kill_process(predecessor, Signal::TERM).ok().map(|()| predecessor)
}
