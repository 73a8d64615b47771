//! One server of an upstream: where it is, its connections, and how it fares.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::link::{Dialled, Http1, Http2, dial};
use super::outgoing::{BodyFault, Outgoing};
use super::progress::Progress;
use super::trust::Trust;

/// Where a server is and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub(super) protocol: Protocol,
    pub(super) host: String,
    pub(super) port: u16,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, as the server likes.
    Https,
    /// HTTP/2 in plain text, as gRPC servers speak it.
    Http2,
}

/// Why a text is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress(&'static str);

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

/// The most connections that are kept without use.
const MAX_KEPT: usize = 1_024;

/// One server.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) weight: u32,
    host: HeaderValue,
    timeouts: Timeouts,
    trust: Trust,
    in_flight: AtomicUsize,
    unwell: AtomicBool,
    kept: Mutex<Vec<(Instant, Box<Http1>)>>,
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

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: Failure,
    /// The request, if surely nothing of it was sent.
    pub(super) unsent: Option<Box<Request<Outgoing>>>,
}

/// What went wrong.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(io::Error),
    ConnectTimeout,
    ResponseTimeout,
    /// The client's body; the server is not to blame.
    Body(BodyFault),
    Broken(hyper::Error),
    /// Its answer cannot be passed on.
    Nonsense(&'static str),
    /// It speaks only what cannot change its protocol.
    NoUpgrade,
}

impl Server {
    pub(super) fn new(address: Address, weight: u32, timeouts: Timeouts, trust: Trust) -> Self {
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
            kept: Mutex::default(),
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

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(&self, request: Request<Outgoing>) -> Result<Answered, Failed> {
        let shared = self.shared.lock().clone();
        if let Some(shared) = shared
            && !shared.http2.is_closed()
        {
            return self.send_http2(shared, request).await;
        }
        if let Some(link) = self.take() {
            return self.send_http1(link, request).await;
        }
        match self.dial().await {
            Ok(Dialled::Http1(link)) => self.send_http1(link, request).await,
            Ok(Dialled::Http2(http2)) => self.send_http2(self.share(http2), request).await,
            Err(why) => Err(Failed { why, unsent: Some(Box::new(request)) }),
        }
    }

    /// Has all requests use a connection from now on.
    fn share(&self, http2: Http2) -> Shared {
        let mut last = self.shared.lock();
        let number = last.as_ref().map_or(0, |last| last.number + 1);
        let shared = Shared { http2, number };
        *last = Some(shared.clone());
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
            let mut kept = self.kept.lock();
            if kept.len() < MAX_KEPT {
                kept.push((Instant::now(), link));
            }
        }
    }

    /// Closes what has been kept for too long.
    pub(super) fn tidy(&self) {
        let Some(oldest) = Instant::now().checked_sub(self.timeouts.keep) else { return };
        let mut kept = self.kept.lock();
        // The last one in is the first one out, so those that nobody needs are in front.
        let stale = kept.iter().take_while(|(since, _)| *since < oldest).count();
        let stale: Vec<_> = kept.drain(..stale).collect();
        drop(kept);
        drop(stale);
    }

    /// A kept connection that lives.
    fn take(&self) -> Option<Box<Http1>> {
        loop {
            let (since, mut link) = self.kept.lock().pop()?;
            if since.elapsed() < self.timeouts.keep && link.is_free() {
                return Some(link);
            }
        }
    }

    async fn send_http1(
        &self,
        mut link: Box<Http1>,
        request: Request<Outgoing>,
    ) -> Result<Answered, Failed> {
        let progress = request.body().progress();
        match Progress::in_time(progress, self.timeouts.response, link.send(request)).await {
            Some(Ok(response)) => Ok(Answered { response, link: Some(link) }),
            Some(Err(mut error)) => {
                let unsent = error.take_message().map(Box::new);
                Err(Failed { why: Failure::of(error.into_error()), unsent })
            }
            None => Err(Failed { why: Failure::ResponseTimeout, unsent: None }),
        }
    }

    async fn send_http2(
        &self,
        Shared { mut http2, number }: Shared,
        mut request: Request<Outgoing>,
    ) -> Result<Answered, Failed> {
        if let Err(error) = http2.ready().await {
            let unsent = Some(Box::new(request));
            return Err(Failed { why: Failure::Broken(error), unsent });
        }
        let again = again(&request);
        absolute(&mut request, &self.address);
        let (progress, span) = (request.body().progress(), self.timeouts.response);
        match Progress::in_time(progress, span, http2.try_send_request(request)).await {
            Some(Ok(response)) => Ok(Answered { response, link: None }),
            Some(Err(mut error)) => {
                let unsent = error.take_message();
                let unread = is_unread(error.error());
                if unread {
                    self.leave(number);
                }
                let unsent = unsent.or(again.filter(|_| unread)).map(Box::new);
                Err(Failed { why: Failure::of(error.into_error()), unsent })
            }
            None => Err(Failed { why: Failure::ResponseTimeout, unsent: None }),
        }
    }
}

/// A request without a body once more, for a server that does not read the first.
fn again(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    let mut again = Request::new(request.body().again()?);
    again.method_mut().clone_from(request.method());
    again.uri_mut().clone_from(request.uri());
    again.headers_mut().clone_from(request.headers());
    Some(again)
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

impl Failure {
    /// hyper tells the fault of a request's body as its own error's cause.
    pub(super) fn of(error: hyper::Error) -> Self {
        let fault = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        match fault {
            Some(fault) => Self::Body(*fault),
            None => Self::Broken(error),
        }
    }
}

impl Failure {
    /// Whether no connection came about.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout)
    }
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

impl Address {
    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether the server is reached over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.protocol == Protocol::Https
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (protocol, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Protocol::Http, rest),
            Some(("https", rest)) => (Protocol::Https, rest),
            Some(("h2c", rest)) => (Protocol::Http2, rest),
            _ => return Err(BadAddress("it begins with http://, https:// or h2c://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(BadAddress("it has no path: requests keep theirs"));
        }
        let authority =
            Authority::try_from(rest).map_err(|_| BadAddress("it names a host and a port"))?;
        if authority.as_str().contains('@') {
            return Err(BadAddress("it has no user and no password"));
        }
        let usual = if protocol == Protocol::Https { 443 } else { 80 };
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // One that is not a port is none.
            None if authority.as_str() != authority.host() => {
                return Err(BadAddress("its port is a number up to 65535"));
            }
            None => usual,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        match host.is_empty() || port == 0 {
            true => Err(BadAddress("it names a host and a port")),
            false => Ok(Self { protocol, host, port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Http2 => "h2c",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is not the address of a server: {}", self.0)
    }
}

impl std::error::Error for BadAddress {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::ConnectTimeout => f.write_str("cannot connect in time"),
            Self::ResponseTimeout => f.write_str("no answer in time"),
            Self::Body(fault) => fault.fmt(f),
            Self::Broken(error) => write!(f, "the answer broke off: {error}"),
            Self::Nonsense(what) => write!(f, "the answer makes no sense: {what}"),
            Self::NoUpgrade => f.write_str("HTTP/2 does not change its protocol"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told() {
        for (text, told) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://api.internal/", "http://api.internal:80"),
            ("https://api.internal", "https://api.internal:443"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
        ] {
            assert_eq!(
                text.parse::<Address>().map(|address| address.to_string()).as_deref(),
                Ok(told)
            );
        }
        for text in [
            "",
            "localhost:3000",
            "ftp://a",
            "http://",
            "http://a/path",
            "http://a?q",
            "http://u@a",
            "http://a:0",
            "http://a:99999",
            "http://a b",
            "http://:80",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
