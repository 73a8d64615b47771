//! One server of an upstream: its connections, its load and its health.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::connection_pool::ConnectionPool;
use super::consistent_hash::ServerHash;
use super::request_body::{RetryHandle, UpstreamRequestBody};
use super::upload_progress::UploadProgress;
use super::upstream_connection::{Http1Connection, Http2Sender, UpstreamConnection, dial};
use super::upstream_error::UpstreamError;
use tidegate_net::connect::{OutboundAddress, OutboundProtocol, OutboundTls};

/// Timeouts of an upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish a connection.
    pub connect: Duration,
    /// From the end of the request to the head of the response.
    pub response: Duration,
    /// Between two pieces of the response body.
    pub idle: Duration,
    /// How long an idle connection is kept for the next request; shorter than servers usually keep
    /// theirs.
    pub pool_idle: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            pool_idle: Duration::from_secs(30),
        }
    }
}

/// A server of an upstream.
pub(super) struct UpstreamServer {
    pub(super) address: OutboundAddress,
    pub(super) weight: u32,
    hash: ServerHash,
    host: HeaderValue,
    timeouts: UpstreamTimeouts,
    tls: OutboundTls,
    in_flight: AtomicUsize,
    unhealthy: AtomicBool,
    connection_pool: ConnectionPool,
    /// Whether the server has ever negotiated HTTP/2.
    speaks_http2: AtomicBool,
    shared_http2: Mutex<Option<SharedHttp2>>,
    /// How many HTTP/2 connections there have been. It never restarts: a late error of an old
    /// connection must not retire its successor.
    http2_generations: AtomicU64,
}

/// The connection that all requests share if the server speaks HTTP/2.
#[derive(Clone)]
struct SharedHttp2 {
    http2: Http2Sender,
    /// The sequence number of this connection.
    generation: u64,
}

/// When other requests may use an HTTP/2 connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Already,
    /// After the request that opened it is queued. That request is then the first one on the
    /// connection, and a server that accepts only a few per connection still processes it.
    OnceQueued,
}

/// Counts a request as in flight until dropped.
pub(super) struct ServerLoadGuard(Arc<UpstreamServer>);

/// The head of a response, and the connection from which its body is read.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Option<Box<Http1Connection>>,
}

impl UpstreamServer {
    /// Creates a server whose connections are used on `threads` threads.
    pub(super) fn new(
        address: OutboundAddress,
        weight: u32,
        timeouts: UpstreamTimeouts,
        tls: OutboundTls,
        threads: usize,
    ) -> Self {
        let host = HeaderValue::from_str(&address.authority());
        Self {
            // Cannot fail: the address was parsed from an authority.
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            hash: ServerHash::new(&address.to_string()),
            address,
            weight,
            timeouts,
            tls,
            in_flight: AtomicUsize::new(0),
            unhealthy: AtomicBool::new(false),
            connection_pool: ConnectionPool::new(threads),
            speaks_http2: AtomicBool::new(false),
            shared_http2: Mutex::default(),
            http2_generations: AtomicU64::new(0),
        }
    }

    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The hash of the address.
    pub(super) const fn hash(&self) -> ServerHash {
        self.hash
    }

    pub(super) const fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.unhealthy.load(Relaxed)
    }

    /// Sets the health; returns whether it changed.
    pub(super) fn set_healthy(&self, healthy: bool) -> bool {
        self.unhealthy.swap(!healthy, Relaxed) == healthy
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn start_request(self: &Arc<Self>) -> ServerLoadGuard {
        self.in_flight.fetch_add(1, Relaxed);
        ServerLoadGuard(Arc::clone(self))
    }

    /// Sends a request and waits for the head of the response. Takes the request from the option,
    /// and puts it back if nothing of it was sent. It is passed by reference because it is large
    /// and would be moved at every step.
    ///
    /// The last attempt opens its own HTTP/2 connection: a shared one could close once more before
    /// it processes this request.
    pub(super) async fn send(
        &self,
        request: &mut Option<Request<UpstreamRequestBody>>,
        last_attempt: bool,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let may_share = self.speaks_http2.load(Relaxed) && !last_attempt;
        let shared = may_share.then(|| self.shared_http2.lock().clone()).flatten();
        if let Some(shared) = shared
            && !shared.http2.is_closed()
        {
            return Box::pin(self.send_http2(shared, request, Share::Already)).await;
        }
        loop {
            let (mut connection, reused) = match self.connection_pool.take(self.timeouts.pool_idle)
            {
                Some(connection) => (connection, true),
                // Rare and large, so it is boxed: its state would enlarge the future of every
                // request.
                None => match Box::pin(self.dial()).await? {
                    UpstreamConnection::Http1(connection) => (connection, false),
                    UpstreamConnection::Http2(http2) => {
                        let generation = self.http2_generations.fetch_add(1, Relaxed);
                        let opened = SharedHttp2 { http2, generation };
                        return Box::pin(self.send_http2(opened, request, Share::OnceQueued)).await;
                    }
                },
            };
            match connection.send(request, self.timeouts.response).await {
                Ok(response) => {
                    return Ok(UpstreamResponse { response, connection: Some(connection) });
                }
                // The server closed this connection while it was idle. Try the next one; the loop
                // ends after the last idle connection.
                Err(_) if reused && request.is_some() => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Makes further requests use this connection.
    fn share_http2(&self, connection: SharedHttp2) {
        *self.shared_http2.lock() = Some(connection);
        self.speaks_http2.store(true, Relaxed);
    }

    /// Stops further requests from using this connection.
    fn retire_http2(&self, generation: u64) {
        let mut current = self.shared_http2.lock();
        if current.as_ref().is_some_and(|current| current.generation == generation) {
            *current = None;
        }
    }

    /// Opens a connection.
    pub(super) async fn dial(&self) -> Result<UpstreamConnection, UpstreamError> {
        let connecting = dial(&self.address, &self.tls);
        match tokio::time::timeout(self.timeouts.connect, connecting).await {
            Ok(connected) => connected.map_err(UpstreamError::Connect),
            Err(_) => Err(UpstreamError::ConnectTimeout),
        }
    }

    /// Returns a connection to the pool after its response has ended, if it can be reused.
    pub(super) fn return_to_pool(&self, mut connection: Box<Http1Connection>) {
        if connection.is_reusable() {
            self.connection_pool.put(connection);
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn evict_idle(&self) {
        self.connection_pool.evict_expired(self.timeouts.pool_idle);
    }

    async fn send_http2(
        &self,
        mut connection: SharedHttp2,
        unsent: &mut Option<Request<UpstreamRequestBody>>,
        share: Share,
    ) -> Result<UpstreamResponse, UpstreamError> {
        connection.http2.ready().await.map_err(UpstreamError::ConnectionBroken)?;
        let mut request = unsent.take().ok_or(UpstreamError::AlreadySent)?;
        let retry = RetryRequest::capture(&mut request);
        set_absolute_form(&mut request, &self.address);
        let (progress, span) = (request.body().progress(), self.timeouts.response);
        // hyper queues the request in this call, not when the future is polled.
        let response = connection.http2.try_send_request(request);
        let generation = connection.generation;
        if share == Share::OnceQueued {
            self.share_http2(connection);
        }
        match UploadProgress::timeout_while_idle(progress, span, response).await {
            Some(Ok(response)) => Ok(UpstreamResponse { response, connection: None }),
            Some(Err(mut error)) => {
                let unprocessed = not_processed(error.error());
                if unprocessed {
                    self.retire_http2(generation);
                }
                *unsent = error.take_message();
                if unsent.is_none() && unprocessed {
                    *unsent = retry.into_request();
                }
                Err(UpstreamError::from_hyper(error.into_error()))
            }
            None => Err(UpstreamError::ResponseTimeout),
        }
    }
}

/// A copy of a request, to retry it if the server does not process the original.
struct RetryRequest {
    head: Request<()>,
    body: RetryHandle,
}

impl RetryRequest {
    fn capture(request: &mut Request<UpstreamRequestBody>) -> Self {
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        Self { head, body: request.body_mut().make_retryable() }
    }

    /// The request, if its body was short enough to be buffered.
    fn into_request(self) -> Option<Request<UpstreamRequestBody>> {
        let (head, ()) = self.head.into_parts();
        Some(Request::from_parts(head, self.body.retry_body()?))
    }
}

/// Whether the server reported that it did not process the request: its GOAWAY excluded the stream,
/// or it refused the stream (RFC 9113 sections 6.8 and 8.7).
fn not_processed(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &h2::Error| {
        error.is_remote()
            && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// HTTP/2 carries the host in the request target, not in the `Host` header.
fn set_absolute_form(request: &mut Request<UpstreamRequestBody>, address: &OutboundAddress) {
    let host = request.headers_mut().remove(http::header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = authority.or_else(|| Authority::try_from(address.authority()).ok());
    let scheme = match address.protocol {
        OutboundProtocol::Https => Scheme::HTTPS,
        OutboundProtocol::Http | OutboundProtocol::Http2 => Scheme::HTTP,
    };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(scheme), authority);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = http::Version::HTTP_2;
}

impl Drop for ServerLoadGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl ServerLoadGuard {
    pub(super) fn server(&self) -> &Arc<UpstreamServer> {
        &self.0
    }
}
