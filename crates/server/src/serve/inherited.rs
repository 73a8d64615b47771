//! Listening sockets that whoever started us has opened: systemd (socket activation), or our
//! predecessor (SIGUSR2). Both name them in the same variables.

use std::net::TcpListener;

use listenfd::ListenFd;

use super::doors::Kind;
use crate::failure::Failure;

pub(super) const COUNT: &str = "LISTEN_FDS";
pub(super) const NAMES: &str = "LISTEN_FDNAMES";
pub(super) const OWNER: &str = "LISTEN_PID";

/// Doors that are open already.
#[derive(Debug, Default)]
pub(super) struct Inherited(Vec<(Option<Kind>, TcpListener)>);

impl Inherited {
    /// Takes them over. This changes the environment, so it comes before all threads.
    ///
    /// # Errors
    /// When one of them is no listening TCP socket.
    pub(super) fn take() -> Result<Self, Failure> {
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':').map(Kind::named);
        let mut sockets = ListenFd::from_env();
        let mut taken = Vec::new();
        for at in 0..sockets.len() {
            let name = names.next().flatten();
            let socket = sockets.take_tcp_listener(at).map_err(|error| {
                Failure::CouldNot(format!("cannot use socket {at} of {COUNT}: {error}"))
            })?;
            taken.extend(socket.map(|socket| (name, socket)));
        }
        Ok(Self(taken))
    }

    /// The socket for a door: the one of its name, else the first without one.
    pub(super) fn socket(&mut self, kind: Kind) -> Option<TcpListener> {
        let named = self.0.iter().position(|(name, _)| *name == Some(kind));
        let at = named.or_else(|| self.0.iter().position(|(name, _)| name.is_none()))?;
        Some(self.0.remove(at).1)
    }

    /// How many nobody took.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}
