//! TCP and Unix-socket listeners. The rest of the crate does not distinguish between them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr as UnixAddr;

use rustix::net::{RecvFlags, listen, recv};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use tidegate_web::Peer;

/// How many connections may wait to be accepted. The kernel lowers it to `net.core.somaxconn`.
/// The runtime's default of 128 is too short: once the queue is full, the kernel drops what new
/// clients send, and they wait a second or more, or are reset.
const ACCEPT_QUEUE: i32 = 4_096;

/// A bound listener.
#[derive(Debug)]
pub enum BoundListener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

/// An accepted connection.
pub type AcceptedSocket = Either<TcpStream, UnixStream>;

/// Address of a listener, displayed as `127.0.0.1:8081` or `unix:/run/tidegate/http.sock`.
#[derive(Clone, Debug)]
pub enum ListenAddr {
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// A Unix socket's path or abstract name.
    Unix(UnixAddr),
}

impl BoundListener {
    /// The address that the listener is bound to.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn local_addr(&self) -> io::Result<ListenAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddr::Tcp),
            Self::Unix(listener) => listener.local_addr().map(|at| ListenAddr::Unix(at.into())),
        }
    }

    /// Lets more connections wait to be accepted. A failure leaves the queue as short as it was.
    pub(super) fn extend_accept_queue(&self) {
        if let Err(error) = listen(self, ACCEPT_QUEUE) {
            tracing::warn!(%error, "failed to extend the accept queue");
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(AcceptedSocket, Peer)> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(tcp, peer)| accepted_tcp(tcp, peer))
            }
            Self::Unix(listener) => listener.accept().await.map(|(unix, _)| accepted_unix(unix)),
        }
    }

    /// Closes the listener and takes the connections that the kernel has already accepted. It asks
    /// the kernel directly, because the runtime may not have seen the newest ones yet.
    pub(super) fn into_backlog(
        self,
    ) -> io::Result<Box<dyn Iterator<Item = (AcceptedSocket, Peer)> + Send>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                Box::new(std::iter::from_fn(move || {
                    let (tcp, peer) = listener.accept().ok()?;
                    tcp.set_nonblocking(true).ok()?;
                    TcpStream::from_std(tcp).ok().map(|tcp| accepted_tcp(tcp, peer))
                }))
            }
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                Box::new(std::iter::from_fn(move || {
                    let (unix, _) = listener.accept().ok()?;
                    unix.set_nonblocking(true).ok()?;
                    UnixStream::from_std(unix).ok().map(accepted_unix)
                }))
            }
        })
    }
}

fn accepted_tcp(tcp: TcpStream, peer: SocketAddr) -> (AcceptedSocket, Peer) {
    (Either::Left(tcp), Peer::Ip(peer.ip().to_canonical()))
}

fn accepted_unix(unix: UnixStream) -> (AcceptedSocket, Peer) {
    (Either::Right(unix), Peer::Unix)
}

/// Moves a connection to the current runtime.
pub(super) fn register_with_runtime(socket: AcceptedSocket) -> io::Result<AcceptedSocket> {
    Ok(match socket {
        Either::Left(tcp) => Either::Left(TcpStream::from_std(tcp.into_std()?)?),
        Either::Right(unix) => Either::Right(UnixStream::from_std(unix.into_std()?)?),
    })
}

/// Disables Nagle's algorithm. Most responses are one small write, which must not wait for the
/// acknowledgement of the previous one.
pub fn set_nodelay(socket: &AcceptedSocket) -> io::Result<()> {
    match socket {
        Either::Left(tcp) => tcp.set_nodelay(true),
        Either::Right(_) => Ok(()),
    }
}

/// Reads available bytes without consuming them.
pub(super) async fn peek(socket: &AcceptedSocket, bytes: &mut [u8]) -> io::Result<usize> {
    match socket {
        Either::Left(tcp) => tcp.peek(bytes).await,
        Either::Right(unix) => {
            let look = || Ok(recv(unix, &mut *bytes, RecvFlags::PEEK)?.0);
            unix.async_io(Interest::READABLE, look).await
        }
    }
}

impl From<TcpListener> for BoundListener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for BoundListener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl AsFd for BoundListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => at.fmt(f),
            Self::Unix(at) => match (at.as_pathname(), at.as_abstract_name()) {
                (Some(path), _) => write!(f, "unix:{}", path.display()),
                (None, Some(name)) => write!(f, "unix:@{}", name.escape_ascii()),
                (None, None) => f.write_str("unix:"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn burst_of_connections_waits_to_be_accepted() {
        const BURST: usize = 300;
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = BoundListener::from(tcp);
        listener.extend_accept_queue();
        let mut connecting = JoinSet::new();
        for _ in 0..BURST {
            connecting.spawn(TcpStream::connect(address));
        }
        let connected = timeout(Duration::from_secs(20), connecting.join_all()).await;
        let connected = connected.expect("the queue is full, so the kernel ignores new clients");
        assert!(connected.iter().all(Result::is_ok));
        assert_eq!(listener.into_backlog().unwrap().count(), BURST);
    }
}
