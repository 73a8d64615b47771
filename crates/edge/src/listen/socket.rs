//! What a door listens on: a port, or a file of this machine. The two differ here and nowhere else.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr as UnixAddr;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::Peer;

/// What a door listens on.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

/// A connection.
pub(crate) type Socket = Either<TcpStream, UnixStream>;

/// Where a listener is, as it is told: `127.0.0.1:8081`, `unix:/run/tidegate/http.sock`.
#[derive(Clone, Debug)]
pub enum Place {
    /// At a port.
    Tcp(SocketAddr),
    /// In a file.
    Unix(UnixAddr),
}

impl Listener {
    /// Where it is.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn place(&self) -> io::Result<Place> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Place::Tcp),
            Self::Unix(listener) => listener.local_addr().map(|at| Place::Unix(at.into())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(tcp, peer)| by_port(tcp, peer)),
            Self::Unix(listener) => listener.accept().await.map(|(unix, _)| by_file(unix)),
        }
    }

    /// Closes it and takes those that the system has accepted already. The system itself is asked: the
    /// runtime may not have heard of the last of them.
    pub(super) fn into_waiting(
        self,
    ) -> io::Result<Box<dyn Iterator<Item = (Socket, Peer)> + Send>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                Box::new(std::iter::from_fn(move || {
                    let (tcp, peer) = listener.accept().ok()?;
                    tcp.set_nonblocking(true).ok()?;
                    TcpStream::from_std(tcp).ok().map(|tcp| by_port(tcp, peer))
                }))
            }
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                Box::new(std::iter::from_fn(move || {
                    let (unix, _) = listener.accept().ok()?;
                    unix.set_nonblocking(true).ok()?;
                    UnixStream::from_std(unix).ok().map(by_file)
                }))
            }
        })
    }
}

fn by_port(tcp: TcpStream, peer: SocketAddr) -> (Socket, Peer) {
    (Either::Left(tcp), Peer::Ip(peer.ip().to_canonical()))
}

fn by_file(unix: UnixStream) -> (Socket, Peer) {
    (Either::Right(unix), Peer::Unix)
}

/// Moves a connection to the runtime that this is called in.
pub(super) fn moved(socket: Socket) -> io::Result<Socket> {
    Ok(match socket {
        Either::Left(tcp) => Either::Left(TcpStream::from_std(tcp.into_std()?)?),
        Either::Right(unix) => Either::Right(UnixStream::from_std(unix.into_std()?)?),
    })
}

/// Most answers are one small write: it must not wait for the acknowledgement of the last.
pub(crate) fn send_at_once(socket: &Socket) -> io::Result<()> {
    match socket {
        Either::Left(tcp) => tcp.set_nodelay(true),
        Either::Right(_) => Ok(()),
    }
}

/// Looks at what is there to be read, and leaves it there.
pub(super) async fn peek(socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
    match socket {
        Either::Left(tcp) => tcp.peek(bytes).await,
        Either::Right(unix) => {
            let look = || Ok(recv(unix, &mut *bytes, RecvFlags::PEEK)?.0);
            unix.async_io(Interest::READABLE, look).await
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl fmt::Display for Place {
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
