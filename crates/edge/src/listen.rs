//! Connections for the doors: accepted, watched, drained. What a request means is the business of the
//! door behind. Most speak HTTP, which is here; another protocol brings its own (`Speaks`).

mod age;
mod connection;
mod crew;
mod flow;
mod framing;
mod hall;
mod peers;
mod proxy_protocol;
mod seldom;
mod socket;
mod stream;
mod tls;
mod traffic;

use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;

use crate::problem::Problem;
use crate::{Peer, answer};

pub(crate) use connection::until;
pub use crew::Crew;
pub(crate) use crew::number as thread_number;
pub use hall::serve;
pub(crate) use hall::{Shared, Speaks, Stage, attend};
pub(crate) use seldom::seldom;
pub use socket::{Listener, Place};
pub(crate) use socket::{Socket, send_at_once};
pub(crate) use stream::{Wire, secured};
pub use tls::{BadCertificate, Tls};

/// An error of any kind, as bodies have them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How connections are treated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most connections at once; others wait to be accepted.
    pub max_connections: usize,
    /// The most of them from one address (of IPv6: from one /64); others are closed. Over a unix socket there
    /// are no addresses, and the file's permissions say who may connect.
    pub max_connections_per_ip: usize,
    /// How long a caller may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a connection may wait between requests.
    pub idle_timeout: Duration,
    /// How long a caller may take none of an answer.
    pub send_timeout: Duration,
    /// How long a connection of HTTP/2 is kept, give or take a tenth: callers that keep theirs for ever
    /// would never find another server.
    pub max_age: Option<Duration>,
    /// How long idle connections stay open after the stop, so that a request under way is answered.
    pub drain_grace: Duration,
    /// How long requests have to finish after the stop.
    pub drain_timeout: Duration,
    /// Whether HTTP/2 is spoken too.
    pub http2: bool,
    /// What callers of HTTP/2 may send before it is read.
    pub windows: Windows,
    /// With what certificate; none for plain text.
    pub tls: Option<Tls>,
    /// Whether every connection begins with the PROXY protocol.
    pub proxy_protocol: bool,
    /// The threads that connections live on; none for those of the runtime that accepts them.
    pub crew: Option<Crew>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_ip: 5_000,
            header_timeout: Duration::from_secs(10),
            // Longer than the pools of common clients keep theirs, so that they close first.
            idle_timeout: Duration::from_secs(120),
            send_timeout: Duration::from_secs(60),
            max_age: None,
            drain_grace: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            http2: false,
            windows: Windows::PROXY,
            tls: None,
            proxy_protocol: false,
            crew: None,
        }
    }
}

/// What callers of HTTP/2 may send before it is read, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The head of a request.
    pub head_bytes: u32,
    /// The body of a request, as far as it is not read yet.
    pub stream_bytes: u32,
    /// The bodies of all requests of a connection.
    pub connection_bytes: u32,
}

impl Windows {
    /// For bodies that are passed on: wide enough for uploads over long distances.
    pub const PROXY: Self =
        Self { head_bytes: 16 * 1024, stream_bytes: 256 * 1024, connection_bytes: 1024 * 1024 };

    /// For calls of gRPC. Each may wait to be read until there is room for it, so the connection has a window for
    /// all of them: otherwise those that wait would hold up the one that is read. Heads are as long as those that
    /// Envoy takes by default, because it passes some of a client's headers on (`tracestate`, `baggage`).
    pub const CALLS: Self = Self {
        head_bytes: 96 * 1024,
        stream_bytes: 64 * 1024,
        connection_bytes: connection::MAX_STREAMS * 64 * 1024,
    };
}

/// What is behind a listener. It answers every request.
pub trait Answers: Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + From<Bytes> + Unpin + Send + 'static;

    /// Answers one request.
    fn answer(
        &self,
        request: Request<Incoming>,
        caller: &Caller,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Refuses a request whose end is not certain.
    fn refuse(&self, problem: &Problem) -> Response<Self::Body> {
        answer::problem(problem)
    }

    /// Whether somebody is believed who says whose connection it is (PROXY protocol).
    fn believes(&self, peer: Peer) -> bool;
}

/// What goes on over a connection after it has changed its protocol.
pub(crate) type Tunnel = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who is at the other end of a connection.
pub struct Caller {
    /// Where they are.
    pub peer: Peer,
    /// Whether they came over TLS.
    pub tls: bool,
    address_text: OnceLock<Option<HeaderValue>>,
    tunnel: Mutex<Option<Tunnel>>,
}

impl Caller {
    /// Somebody who came over TLS or not.
    #[must_use]
    pub const fn new(peer: Peer, tls: bool) -> Self {
        Self { peer, tls, address_text: OnceLock::new(), tunnel: Mutex::new(None) }
    }

    /// Their address as headers tell it, if they have one.
    pub(crate) fn address_text(&self) -> Option<&HeaderValue> {
        // Digits, dots and colons are the value of a header.
        let text = || HeaderValue::try_from(self.peer.ip()?.to_string()).ok();
        self.address_text.get_or_init(text).as_ref()
    }

    /// What to do with the connection once its last answer has changed the protocol.
    pub(crate) fn tunnel(&self, tunnel: Tunnel) {
        *self.tunnel.lock() = Some(tunnel);
    }

    /// Keeps a value until the tunnel has ended; drops it now if there is none.
    pub(crate) fn after_tunnel(&self, kept: impl Send + 'static) {
        let mut tunnel = self.tunnel.lock();
        if let Some(inner) = tunnel.take() {
            *tunnel = Some(Box::pin(async move {
                inner.await;
                drop(kept);
            }));
        }
    }

    fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.lock().take()
    }
}
