//! Listening sockets inherited from the parent process: systemd (socket activation) or our
//! predecessor (SIGUSR2). Both describe them in the same environment variables.

use std::io;
use std::net;
use std::os::unix::net as unix;

use listenfd::ListenFd;
use tidegate_net::listen::{BoundListener, ListenAddr};
use tokio::net::{TcpListener, UnixListener};

use super::listeners::ListenerKind;
use super::socket_file::SocketFile;
use crate::error::CommandError;

pub(super) const FD_COUNT_ENV: &str = "LISTEN_FDS";
pub(super) const FD_NAMES_ENV: &str = "LISTEN_FDNAMES";
pub(super) const OWNER_PID_ENV: &str = "LISTEN_PID";

/// Names the listeners whose socket files a predecessor hands over. Files of systemd's sockets are
/// removed by systemd.
pub(super) const SOCKET_FILES_ENV: &str = "TIDEGATE_SOCKET_FILES";

/// An inherited listening socket.
#[derive(Debug)]
enum InheritedSocket {
    Tcp(net::TcpListener),
    Unix(unix::UnixListener),
}

/// All inherited sockets, with the listener each is named for.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets(Vec<(Option<ListenerKind>, InheritedSocket)>);

impl InheritedSockets {
    /// Takes over the inherited sockets. This changes the environment, so it must run before any
    /// thread starts.
    ///
    /// # Errors
    /// When one of them is not a listening TCP or Unix socket.
    pub(super) fn from_env() -> Result<Self, CommandError> {
        let names = std::env::var(FD_NAMES_ENV).unwrap_or_default();
        let mut names = names.split(':').map(ListenerKind::from_name);
        let mut sockets = ListenFd::from_env();
        let mut taken = Vec::new();
        for at in 0..sockets.len() {
            let name = names.next().flatten();
            // A socket of another type is left in place by `take_unix_listener`.
            let socket = match sockets.take_unix_listener(at) {
                Ok(socket) => socket.map(InheritedSocket::Unix),
                Err(_) => sockets
                    .take_tcp_listener(at)
                    .map_err(unusable_error(at))?
                    .map(InheritedSocket::Tcp),
            };
            taken.extend(socket.map(|socket| (name, socket)));
        }
        Ok(Self(taken))
    }

    /// Takes the socket for a listener: the one with its name, else the first unnamed one. Also
    /// returns the socket file if it was handed over.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub(super) fn take_socket(
        &mut self,
        kind: ListenerKind,
    ) -> Result<Option<(BoundListener, Option<SocketFile>)>, CommandError> {
        let named = self.0.iter().position(|(name, _)| *name == Some(kind));
        let index = named.or_else(|| self.0.iter().position(|(name, _)| name.is_none()));
        let Some(index) = index else { return Ok(None) };
        let listener = self.0.remove(index).1.into_listener()?;
        let file = match listener.local_addr()? {
            ListenAddr::Unix(address) if owns_file(kind) => {
                address.as_pathname().and_then(SocketFile::adopt)
            }
            _ => None,
        };
        Ok(Some((listener, file)))
    }

    /// The number of sockets that no listener took.
    pub(super) fn remaining(&self) -> usize {
        self.0.len()
    }
}

impl InheritedSocket {
    fn into_listener(self) -> io::Result<BoundListener> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket).map(BoundListener::from)
            }
            Self::Unix(socket) => {
                socket.set_nonblocking(true)?;
                UnixListener::from_std(socket).map(BoundListener::from)
            }
        }
    }
}

/// Whether a listener's socket file was handed over with it.
fn owns_file(kind: ListenerKind) -> bool {
    let names = std::env::var(SOCKET_FILES_ENV).unwrap_or_default();
    names.split(':').any(|name| name == kind.name())
}

fn unusable_error(at: usize) -> impl Fn(io::Error) -> CommandError {
    move |error| {
        let needed = "it must be a listening TCP or Unix socket";
        CommandError::Failed(format!("cannot use socket {at} of {FD_COUNT_ENV}: {error}; {needed}"))
    }
}
