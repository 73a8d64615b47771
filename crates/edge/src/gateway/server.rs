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

use super::address::{Address, Protocol};
use super::failure::Failure;
use super::link::{Dialled, Http1, Http2, dial};
use super::outgoing::{Again, Outgoing};
use super::progress::Progress;
use super::shelves::Shelves;
use super::trust::Trust;

/// How long a server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To accept a connection.
    pub connect: Duration,
    /// To begin its answer, once the request has been sent.
    pub response: Duration,
    /// Between two pieces of its answer.
    pub idle: Duration,
    /// How long a connection is kept for the next request; less than servers keep theirs.
    pub keep: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            keep: Duration::from_secs(30),
        }
    }
}

/// One server.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) weight: u32,
    host: HeaderValue,
    timeouts: Timeouts,
    trust: Trust,
    in_flight: AtomicUsize,
    unwell: AtomicBool,
    kept: Shelves,
    /// Whether there was ever a shared connection.
    speaks_http2: AtomicBool,
    shared: Mutex<Option<Shared>>,
}

/// The connection that all requests share where the server speaks HTTP/2.
#[derive(Clone)]
struct Shared {
    http2: Http2,
    /// Which it is of all there were.
    number: u64,
}

/// A request that a server is busy with.
pub(super) struct InFlight(Arc<Server>);

/// The head of an answer, and the connection that its body still comes over.
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) link: Option<Box<Http1>>,
}

impl Server {
    /// A server whose connections are used on so many threads.
    pub(super) fn new(
        address: Address,
        weight: u32,
        timeouts: Timeouts,
        trust: Trust,
        threads: usize,
    ) -> Self {
        let host = HeaderValue::from_str(&address.authority());
        Self {
            // An address was an authority when it was parsed.
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            address,
            weight,
            timeouts,
            trust,
            in_flight: AtomicUsize::new(0),
            unwell: AtomicBool::new(false),
            kept: Shelves::new(threads),
            speaks_http2: AtomicBool::new(false),
            shared: Mutex::default(),
        }
    }

    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(super) const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn is_well(&self) -> bool {
        !self.unwell.load(Relaxed)
    }

    /// Notes how it fares; says whether that is news.
    pub(super) fn set_well(&self, well: bool) -> bool {
        self.unwell.swap(!well, Relaxed) == well
    }

    /// Counts a request until the value is dropped.
    pub(super) fn occupy(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Sends a request and waits for the head of the answer. The request is taken, and put back where surely
    /// nothing of it was sent: by reference, because it is large and moved at every step otherwise.
    pub(super) async fn send(
        &self,
        request: &mut Option<Request<Outgoing>>,
    ) -> Result<Answered, Failure> {
        let shared = self.speaks_http2.load(Relaxed).then(|| self.shared.lock().clone()).flatten();
        if let Some(shared) = shared
            && !shared.http2.is_closed()
        {
            return Box::pin(self.send_http2(shared, request)).await;
        }
        loop {
            let (mut link, kept) = match self.kept.take(self.timeouts.keep) {
                Some(link) => (link, true),
                // Rare, and large: boxed, because its state would be carried about with every request.
                None => match Box::pin(self.dial()).await? {
                    Dialled::Http1(link) => (link, false),
                    Dialled::Http2(http2) => {
                        return Box::pin(self.send_http2(self.share(http2), request)).await;
                    }
                },
            };
            match link.send(request, self.timeouts.response).await {
                Ok(response) => return Ok(Answered { response, link: Some(link) }),
                // One that was closed while it was kept says so when it is used; there are no more of these than
                // are kept.
                Err(_) if kept && request.is_some() => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Has all requests use a connection from now on.
    fn share(&self, http2: Http2) -> Shared {
        let mut last = self.shared.lock();
        let number = last.as_ref().map_or(0, |last| last.number + 1);
        let shared = Shared { http2, number };
        *last = Some(shared.clone());
        self.speaks_http2.store(true, Relaxed);
        shared
    }

    /// Has no further request use a connection.
    fn leave(&self, number: u64) {
        let mut last = self.shared.lock();
        if last.as_ref().is_some_and(|last| last.number == number) {
            *last = None;
        }
    }

    /// A new connection.
    pub(super) async fn dial(&self) -> Result<Dialled, Failure> {
        let dialling = dial(&self.address, &self.trust);
        match tokio::time::timeout(self.timeouts.connect, dialling).await {
            Ok(dialled) => dialled.map_err(Failure::Connect),
            Err(_) => Err(Failure::ConnectTimeout),
        }
    }

    /// Keeps a connection whose answer has come to its end for the next request, if it can be used.
    pub(super) fn keep(&self, mut link: Box<Http1>) {
        if link.is_free() {
            self.kept.keep(link);
        }
    }

    /// Closes what has been kept for too long.
    pub(super) fn tidy(&self) {
        self.kept.tidy(self.timeouts.keep);
    }

    async fn send_http2(
        &self,
        Shared { mut http2, number }: Shared,
        unsent: &mut Option<Request<Outgoing>>,
    ) -> Result<Answered, Failure> {
        http2.ready().await.map_err(Failure::Broken)?;
        let mut request = unsent.take().ok_or(Failure::Sent)?;
        let again = Once::more(&mut request);
        absolute(&mut request, &self.address);
        let (progress, span) = (request.body().progress(), self.timeouts.response);
        match Progress::in_time(progress, span, http2.try_send_request(request)).await {
            Some(Ok(response)) => Ok(Answered { response, link: None }),
            Some(Err(mut error)) => {
                let unread = is_unread(error.error());
                if unread {
                    self.leave(number);
                }
                *unsent = error.take_message();
                if unsent.is_none() && unread {
                    *unsent = again.request();
                }
                Err(Failure::of(error.into_error()))
            }
            None => Err(Failure::ResponseTimeout),
        }
    }
}

/// A request once more, for a server that does not read the first.
struct Once {
    head: Request<()>,
    body: Again,
}

impl Once {
    fn more(request: &mut Request<Outgoing>) -> Self {
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        Self { head, body: request.body_mut().rereadable() }
    }

    /// The request, if its body was short enough to be kept.
    fn request(self) -> Option<Request<Outgoing>> {
        let (head, ()) = self.head.into_parts();
        Some(Request::from_parts(head, self.body.body()?))
    }
}

/// Whether a server has said that it has not read a request and will not: it was on the way when the
/// server said GOAWAY, or is refused (RFC 9113 sections 6.8 and 8.7).
fn is_unread(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &h2::Error| {
        error.is_remote()
            && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// HTTP/2 says in its target for whom a request is, not in `Host`.
fn absolute(request: &mut Request<Outgoing>, address: &Address) {
    let host = request.headers_mut().remove(http::header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = authority.or_else(|| Authority::try_from(address.authority()).ok());
    let scheme = match address.protocol {
        Protocol::Https => Scheme::HTTPS,
        Protocol::Http | Protocol::Http2 => Scheme::HTTP,
    };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(scheme), authority);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = http::Version::HTTP_2;
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl InFlight {
    pub(super) fn server(&self) -> &Arc<Server> {
        &self.0
    }
}
