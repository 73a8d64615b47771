//! One server of an upstream: its connections, and how it fares.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::idle_pool::IdleConnectionPool;
use super::request_body::{ReplayHandle, UpstreamRequestBody};
use super::upload_progress::UploadProgress;
use super::upstream_connection::{Http1Connection, Http2Sender, UpstreamConnection, dial};
use super::upstream_error::UpstreamError;
use tidegate_net::connect::{OutboundAddress, OutboundProtocol, OutboundTls};

/// How long a server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To accept a connection.
    pub connect: Duration,
    /// To begin its answer, once the request has been sent.
    pub response: Duration,
    /// Between two pieces of its answer.
    pub idle: Duration,
    /// How long a connection is kept for the next request; less than servers keep theirs.
    pub keep_alive: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            keep_alive: Duration::from_secs(30),
        }
    }
}

/// One server.
pub(super) struct UpstreamServer {
    pub(super) address: OutboundAddress,
    pub(super) weight: u32,
    host: HeaderValue,
    timeouts: UpstreamTimeouts,
    tls: OutboundTls,
    in_flight: AtomicUsize,
    unhealthy: AtomicBool,
    idle_pool: IdleConnectionPool,
    /// Whether there was ever a shared connection.
    speaks_http2: AtomicBool,
    shared_http2: Mutex<Option<SharedHttp2>>,
}

/// The connection that all requests share where the server speaks HTTP/2.
#[derive(Clone)]
struct SharedHttp2 {
    http2: Http2Sender,
    /// Which it is of all there were.
    generation: u64,
}

/// A request that a server is busy with.
pub(super) struct ServerLoadGuard(Arc<UpstreamServer>);

/// The head of an answer, and the connection that its body still comes over.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Option<Box<Http1Connection>>,
}

impl UpstreamServer {
    /// A server whose connections are used on so many threads.
    pub(super) fn new(
        address: OutboundAddress,
        weight: u32,
        timeouts: UpstreamTimeouts,
        tls: OutboundTls,
        threads: usize,
    ) -> Self {
        let host = HeaderValue::from_str(&address.authority());
        Self {
            // An address was an authority when it was parsed.
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            address,
            weight,
            timeouts,
            tls,
            in_flight: AtomicUsize::new(0),
            unhealthy: AtomicBool::new(false),
            idle_pool: IdleConnectionPool::new(threads),
            speaks_http2: AtomicBool::new(false),
            shared_http2: Mutex::default(),
        }
    }

    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
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

    /// Notes how it fares; says whether that is news.
    pub(super) fn set_healthy(&self, well: bool) -> bool {
        self.unhealthy.swap(!well, Relaxed) == well
    }

    /// Counts a request until the value is dropped.
    pub(super) fn start_request(self: &Arc<Self>) -> ServerLoadGuard {
        self.in_flight.fetch_add(1, Relaxed);
        ServerLoadGuard(Arc::clone(self))
    }

    /// Sends a request and waits for the head of the answer. The request is taken, and put back where surely
    /// nothing of it was sent: by reference, because it is large and moved at every step otherwise.
    pub(super) async fn send(
        &self,
        request: &mut Option<Request<UpstreamRequestBody>>,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let shared =
            self.speaks_http2.load(Relaxed).then(|| self.shared_http2.lock().clone()).flatten();
        if let Some(shared) = shared
            && !shared.http2.is_closed()
        {
            return Box::pin(self.send_http2(shared, request)).await;
        }
        loop {
            let (mut link, kept) = match self.idle_pool.take(self.timeouts.keep_alive) {
                Some(link) => (link, true),
                // Rare, and large: boxed, because its state would be carried about with every request.
                None => match Box::pin(self.dial()).await? {
                    UpstreamConnection::Http1(link) => (link, false),
                    UpstreamConnection::Http2(http2) => {
                        return Box::pin(self.send_http2(self.share_http2(http2), request)).await;
                    }
                },
            };
            match link.send(request, self.timeouts.response).await {
                Ok(response) => return Ok(UpstreamResponse { response, connection: Some(link) }),
                // One that was closed while it was kept says so when it is used; there are no more of these than
                // are kept.
                Err(_) if kept && request.is_some() => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Has all requests use a connection from now on.
    fn share_http2(&self, http2: Http2Sender) -> SharedHttp2 {
        let mut last = self.shared_http2.lock();
        let number = last.as_ref().map_or(0, |last| last.generation + 1);
        let shared = SharedHttp2 { http2, generation: number };
        *last = Some(shared.clone());
        self.speaks_http2.store(true, Relaxed);
        shared
    }

    /// Has no further request use a connection.
    fn retire_http2(&self, number: u64) {
        let mut last = self.shared_http2.lock();
        if last.as_ref().is_some_and(|last| last.generation == number) {
            *last = None;
        }
    }

    /// A new connection.
    pub(super) async fn dial(&self) -> Result<UpstreamConnection, UpstreamError> {
        let dialling = dial(&self.address, &self.tls);
        match tokio::time::timeout(self.timeouts.connect, dialling).await {
            Ok(dialled) => dialled.map_err(UpstreamError::Connect),
            Err(_) => Err(UpstreamError::ConnectTimeout),
        }
    }

    /// Keeps a connection whose answer has come to its end for the next request, if it can be used.
    pub(super) fn return_to_pool(&self, mut link: Box<Http1Connection>) {
        if link.is_reusable() {
            self.idle_pool.put(link);
        }
    }

    /// Closes what has been kept for too long.
    pub(super) fn evict_idle(&self) {
        self.idle_pool.evict_expired(self.timeouts.keep_alive);
    }

    async fn send_http2(
        &self,
        SharedHttp2 { mut http2, generation: number }: SharedHttp2,
        unsent: &mut Option<Request<UpstreamRequestBody>>,
    ) -> Result<UpstreamResponse, UpstreamError> {
        http2.ready().await.map_err(UpstreamError::ConnectionBroken)?;
        let mut request = unsent.take().ok_or(UpstreamError::AlreadySent)?;
        let again = RetryRequest::capture(&mut request);
        set_absolute_form(&mut request, &self.address);
        let (progress, span) = (request.body().progress(), self.timeouts.response);
        match UploadProgress::timeout_while_idle(progress, span, http2.try_send_request(request))
            .await
        {
            Some(Ok(response)) => Ok(UpstreamResponse { response, connection: None }),
            Some(Err(mut error)) => {
                let unread = not_processed(error.error());
                if unread {
                    self.retire_http2(number);
                }
                *unsent = error.take_message();
                if unsent.is_none() && unread {
                    *unsent = again.into_request();
                }
                Err(UpstreamError::from_hyper(error.into_error()))
            }
            None => Err(UpstreamError::ResponseTimeout),
        }
    }
}

/// A request once more, for a server that does not read the first.
struct RetryRequest {
    head: Request<()>,
    body: ReplayHandle,
}

impl RetryRequest {
    fn capture(request: &mut Request<UpstreamRequestBody>) -> Self {
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        Self { head, body: request.body_mut().make_replayable() }
    }

    /// The request, if its body was short enough to be kept.
    fn into_request(self) -> Option<Request<UpstreamRequestBody>> {
        let (head, ()) = self.head.into_parts();
        Some(Request::from_parts(head, self.body.replay()?))
    }
}

/// Whether a server has said that it has not read a request and will not: it was on the way when the
/// server said GOAWAY, or is refused (RFC 9113 sections 6.8 and 8.7).
fn not_processed(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &h2::Error| {
        error.is_remote()
            && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// HTTP/2 says in its target for whom a request is, not in `RequestHost`.
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
