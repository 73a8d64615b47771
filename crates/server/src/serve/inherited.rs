//! Listening sockets that whoever started us has opened: systemd (socket activation), or our
//! predecessor (SIGUSR2). Both name them in the same variables.

use std::io;
use std::net;
use std::os::unix::net as unix;

use listenfd::ListenFd;
use tidegate_edge::listen::{Listener, Place};
use tokio::net::{TcpListener, UnixListener};

use super::doors::Kind;
use super::socket_file::SocketFile;
use crate::failure::Failure;

pub(super) const COUNT: &str = "LISTEN_FDS";
pub(super) const NAMES: &str = "LISTEN_FDNAMES";
pub(super) const OWNER: &str = "LISTEN_PID";

/// The doors whose files a predecessor hands on with them. Those of systemd are systemd's to remove.
pub(super) const FILES: &str = "TIDEGATE_SOCKET_FILES";

/// A socket that is open already.
#[derive(Debug)]
enum Handed {
    Tcp(net::TcpListener),
    Unix(unix::UnixListener),
}

/// Doors that are open already.
#[derive(Debug, Default)]
pub(super) struct Inherited(Vec<(Option<Kind>, Handed)>);

impl Inherited {
    /// Takes them over. This changes the environment, so it comes before all threads.
    ///
    /// # Errors
    /// When one of them is no listening socket of TCP or unix.
    pub(super) fn take() -> Result<Self, Failure> {
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':').map(Kind::named);
        let mut sockets = ListenFd::from_env();
        let mut taken = Vec::new();
        for at in 0..sockets.len() {
            let name = names.next().flatten();
            // What is of the wrong kind stays where it is.
            let socket = match sockets.take_unix_listener(at) {
                Ok(socket) => socket.map(Handed::Unix),
                Err(_) => sockets.take_tcp_listener(at).map_err(unusable(at))?.map(Handed::Tcp),
            };
            taken.extend(socket.map(|socket| (name, socket)));
        }
        Ok(Self(taken))
    }

    /// The socket for a door: the one of its name, else the first without one; with its file, if that goes
    /// with it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn socket(
        &mut self,
        kind: Kind,
    ) -> Result<Option<(Listener, Option<SocketFile>)>, Failure> {
        let named = self.0.iter().position(|(name, _)| *name == Some(kind));
        let at = named.or_else(|| self.0.iter().position(|(name, _)| name.is_none()));
        let Some(at) = at else { return Ok(None) };
        let listener = self.0.remove(at).1.listener()?;
        let file = match listener.place()? {
            Place::Unix(place) if owns_file(kind) => {
                place.as_pathname().and_then(SocketFile::inherited)
            }
            _ => None,
        };
        Ok(Some((listener, file)))
    }

    /// How many nobody took.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}

impl Handed {
    fn listener(self) -> io::Result<Listener> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket).map(Listener::from)
            }
            Self::Unix(socket) => {
                socket.set_nonblocking(true)?;
                UnixListener::from_std(socket).map(Listener::from)
            }
        }
    }
}

/// Whether the file of a door is handed on with it.
fn owns_file(kind: Kind) -> bool {
    let names = std::env::var(FILES).unwrap_or_default();
    names.split(':').any(|name| name == kind.name())
}

fn unusable(at: usize) -> impl Fn(io::Error) -> Failure {
    move |error| {
        let what = "a listening socket of TCP or unix is needed";
        Failure::CouldNot(format!("cannot use socket {at} of {COUNT}: {error}; {what}"))
    }
}
