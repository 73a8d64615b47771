//! Inbound connections: accept, watch for timeouts, drain. The handler behind a listener decides
//! what a request means. HTTP is implemented here; other protocols implement `ConnectionHandler`.

mod accept_loop;
mod connection;
mod connection_activity;
mod connection_timeouts;
mod framing;
mod max_connection_age;
mod parse_error_response;
mod per_ip_connections;
mod poll_on_wake;
mod proxy_protocol;
mod socket;
mod stalled_streams;
mod stream;
mod tls;
mod worker_pool;

use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;

use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, http_response};

pub use accept_loop::serve;
pub use accept_loop::{ConnectionHandler, ListenerContext, ShutdownPhase, serve_protocol};
pub use connection::wait_for_phase;
pub use poll_on_wake::poll_on_wake;
pub use socket::{AcceptedSocket, set_nodelay};
pub use socket::{BoundListener, ListenAddr};
pub use stream::{MaybeTlsSocket, accept_tls};
pub use tls::{ServerTls, ServerTlsError};
pub use worker_pool::WorkerPool;
pub use worker_pool::worker_index;

/// Any error, as response bodies return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Limits, timeouts and protocols of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of open connections; further ones wait to be accepted.
    pub max_connections: usize,
    /// Maximum number of connections from one address (IPv6: from one /64); further ones are
    /// closed. Unix-socket peers have no address; the permissions of the socket file control who
    /// connects.
    pub max_connections_per_ip: usize,
    /// How long a client may take to send a request head.
    pub header_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of a response.
    pub send_timeout: Duration,
    /// Maximum age of an HTTP/2 connection, plus or minus a tenth. Without it, long-lived clients
    /// would never reconnect and so never move to another server.
    pub max_age: Option<Duration>,
    /// How long idle connections stay open after shutdown begins, so that a request already on the
    /// wire is still answered.
    pub drain_grace: Duration,
    /// How long requests have to finish after shutdown begins.
    pub drain_timeout: Duration,
    /// Whether the listener also accepts HTTP/2.
    pub http2: bool,
    /// Limits on what an HTTP/2 client may send before it is read.
    pub windows: Http2Windows,
    /// The certificate to serve; `None` for plain text.
    pub tls: Option<ServerTls>,
    /// Whether every connection begins with the PROXY protocol.
    pub proxy_protocol: bool,
    /// The threads that run connections; `None` for the runtime that accepts them.
    pub workers: Option<WorkerPool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_ip: 5_000,
            header_timeout: Duration::from_secs(10),
            // Longer than common client pools keep idle connections, so that the client closes
            // first.
            idle_timeout: Duration::from_secs(120),
            send_timeout: Duration::from_secs(60),
            max_age: None,
            drain_grace: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            http2: false,
            windows: Http2Windows::PROXY,
            tls: None,
            proxy_protocol: false,
            workers: None,
        }
    }
}

/// Limits in bytes on what an HTTP/2 client may send before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Windows {
    /// Maximum size of a request head.
    pub head_bytes: u32,
    /// Flow-control window of one request body.
    pub stream_bytes: u32,
    /// Flow-control window of all request bodies on a connection.
    pub connection_bytes: u32,
}

impl Http2Windows {
    /// For bodies that are forwarded: wide enough for uploads over long distances.
    pub const PROXY: Self =
        Self { head_bytes: 16 * 1024, stream_bytes: 256 * 1024, connection_bytes: 1024 * 1024 };

    /// For gRPC calls. A call may wait unread until there is room for it, so the connection window
    /// covers the windows of all streams. Otherwise the waiting calls would block the one being
    /// read. The head limit is Envoy's default, because Envoy forwards some of a client's headers
    /// (`tracestate`, `baggage`).
    pub const GRPC: Self = Self {
        head_bytes: 96 * 1024,
        stream_bytes: 64 * 1024,
        connection_bytes: connection::MAX_STREAMS * 64 * 1024,
    };
}

/// Handles every HTTP request of a listener.
pub trait HttpHandler: Send + Sync + 'static {
    /// The body type of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + From<Bytes> + Unpin + Send + 'static;

    /// Handles one request.
    fn handle(
        &self,
        request: Request<Incoming>,
        caller: &ConnectionInfo,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Builds the response to a request with ambiguous framing.
    fn reject(&self, problem: &HttpError) -> Response<Self::Body> {
        http_response::problem(problem)
    }

    /// The header that identifies the response to a request head that cannot be parsed.
    fn new_request_id(&self) -> Option<(HeaderName, HeaderValue)> {
        None
    }

    /// Whether this peer may name the client address with the PROXY protocol.
    fn trusts_peer(&self, peer: Peer) -> bool;
}

/// Runs on a connection after it has switched protocols (`Upgrade`).
pub type TunnelFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The peer of a connection.
pub struct ConnectionInfo {
    /// The peer's address, or that it came over a Unix socket.
    pub peer: Peer,
    /// Whether the connection uses TLS.
    pub tls: bool,
    address_text: OnceLock<Option<HeaderValue>>,
    tunnel: Mutex<Option<TunnelFuture>>,
}

impl ConnectionInfo {
    /// Describes a connection from `peer`, with or without TLS.
    #[must_use]
    pub const fn new(peer: Peer, tls: bool) -> Self {
        Self { peer, tls, address_text: OnceLock::new(), tunnel: Mutex::new(None) }
    }

    /// The peer's IP address as a header value; `None` for a Unix-socket peer.
    pub fn address_text(&self) -> Option<&HeaderValue> {
        // Digits, dots and colons always form a valid header value.
        let text = || HeaderValue::try_from(self.peer.ip()?.to_string()).ok();
        self.address_text.get_or_init(text).as_ref()
    }

    /// Sets what runs on the connection after a response that switches protocols.
    pub fn set_tunnel(&self, tunnel: TunnelFuture) {
        *self.tunnel.lock() = Some(tunnel);
    }

    /// Keeps a value until the tunnel has ended; drops it now if there is none.
    pub fn hold_until_tunnel_ends(&self, value: impl Send + 'static) {
        let mut tunnel = self.tunnel.lock();
        if let Some(inner) = tunnel.take() {
            *tunnel = Some(Box::pin(async move {
                inner.await;
                drop(value);
            }));
        }
    }

    fn take_tunnel(&self) -> Option<TunnelFuture> {
        self.tunnel.lock().take()
    }
}
