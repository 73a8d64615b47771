//! A restart that loses no request: a new process gets the listening sockets, and when it serves it tells
//! the old one to stop (SIGTERM), which then answers what is under way.
//!
//! Measured elsewhere: two processes that listen side by side (SO_REUSEPORT) lose connections when the
//! first closes; one socket that is handed on does not.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use super::doors::Kind;
use super::inherited::{COUNT, FILES, NAMES, OWNER};
use super::opening::Opened;

/// Says to the successor whose it is.
const PREDECESSOR: &str = "TIDEGATE_PREDECESSOR";

/// The first descriptor that is handed on (sd_listen_fds).
const FIRST: i32 = 3;

/// What it takes to start a successor.
#[derive(Debug)]
pub(super) struct Estate {
    program: PathBuf,
    args: Vec<OsString>,
    sockets: Vec<(Kind, OwnedFd)>,
    /// The doors whose files are removed by whoever serves last.
    files: Vec<&'static str>,
}

impl Estate {
    /// The program as it is now called; its file, or the link to it, may be replaced by a new version
    /// later.
    pub(super) fn new() -> io::Result<Self> {
        let program = called(std::env::current_exe()?);
        let args = std::env::args_os().skip(1).collect();
        Ok(Self { program, args, sockets: Vec::new(), files: Vec::new() })
    }

    /// Keeps a copy of a door's socket.
    pub(super) fn add(&mut self, door: &Opened) -> io::Result<()> {
        self.sockets.push((door.kind, door.listener.as_fd().try_clone_to_owned()?));
        self.files.extend(door.file.as_ref().map(|_| door.kind.name()));
        Ok(())
    }

    /// Starts a process with the same arguments and the same sockets.
    pub(super) fn hand_over(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        let names: Vec<&str> = self.sockets.iter().map(|(kind, _)| kind.name()).collect();
        command
            .args(&self.args)
            .env(COUNT, names.len().to_string())
            .env(NAMES, names.join(":"))
            .env(FILES, self.files.join(":"))
            .env(PREDECESSOR, getpid().as_raw_nonzero().to_string())
            .env_remove(OWNER);
        let mappings = (FIRST..).zip(&self.sockets).map(|(child_fd, (_, socket))| {
            Ok(FdMapping { parent_fd: socket.try_clone()?, child_fd })
        });
        let mappings = mappings.collect::<io::Result<Vec<_>>>()?;
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        command.spawn()
    }
}

/// The name under which a program was called, where it leads to the program: a link stays a link.
fn called(program: PathBuf) -> PathBuf {
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

/// The successor, unless it has ended again.
pub(super) fn alive(mut successor: Child) -> Option<Child> {
    match successor.try_wait() {
        Ok(None) => Some(successor),
        Ok(Some(_)) | Err(_) => None,
    }
}

/// Tells the predecessor, if there is one, that its doors are served.
pub(super) fn relieve() -> Option<Pid> {
    let predecessor = std::env::var(PREDECESSOR).ok()?.parse().ok().and_then(Pid::from_raw)?;
    // One that is gone, and whose number another process has by now, is not our parent.
    if getppid() != Some(predecessor) {
        return None;
    }
    kill_process(predecessor, Signal::TERM).ok().map(|()| predecessor)
}
