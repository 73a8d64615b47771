//! One connection: opened, then hyper speaks, and a watchdog ends it when the other side dawdles.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio_util::either::Either;

use super::age::old;
use super::flow::{Flows, Seen};
use super::framing::Framing;
use super::hall::{Shared, Stage};
use super::proxy_protocol::{self, Parsed};
use super::seldom::seldom;
use super::socket::{Socket, peek, send_at_once};
use super::stream::{Stream, Wire, secured};
use super::traffic::{Phase, Traffic, Watched};
use super::{Answers, Caller, Settings};
use crate::problem::Problem;
use crate::{Peer, answer};

/// The longest head of a request, and the most headers in it.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// HTTP/2: what a caller may have under way, and how often it may change its mind. A caller beyond is
/// told to go (CVE-2023-44487, CVE-2024-27316, CVE-2025-8671).
pub(super) const MAX_STREAMS: u32 = 128;
const MAX_PENDING_RESETS: usize = 20;
const MAX_OWN_RESETS: usize = 256;

/// How often somebody who says nothing is asked whether they are there.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// What a client of HTTP/2 says first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that is ready to be spoken on.
struct Opened {
    wire: Wire,
    /// What was read to see what it is.
    first: Bytes,
    version: Version,
    /// Whose it is.
    peer: Peer,
}

/// Runs each answer of HTTP/2 as a task of its own. Its state is large, and the runtime moves it many times on the
/// way in and out, so that it is boxed first.
#[derive(Clone, Copy)]
struct Boxing;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Boxing {
    fn execute(&self, answer: F) {
        tokio::spawn(Box::pin(answer));
    }
}

/// A connection with the door behind it.
struct Link<D> {
    shared: Arc<Shared<D>>,
    caller: Caller,
    traffic: Arc<Traffic>,
    /// None where there is one answer at a time.
    flows: Option<Arc<Flows>>,
}

/// What a door says, on its way out.
type Answer<D> = Response<Watched<<D as Answers>::Body, AtWork<D>>>;

/// A request that is being answered.
struct AtWork<D>(Arc<Link<D>>);

impl<D> AtWork<D> {
    /// Whether it can be told where the request ends.
    fn begin(link: Arc<Link<D>>) -> (bool, Self) {
        (link.traffic.begin(), Self(link))
    }
}

impl<D> Drop for AtWork<D> {
    fn drop(&mut self) {
        self.0.traffic.ended();
    }
}

/// Speaks HTTP on a connection until it ends, dawdles, or is told to end and the request under way is
/// answered.
pub(super) async fn speak<D: Answers>(
    socket: Socket,
    peer: Peer,
    shared: Arc<Shared<D>>,
    stage: watch::Receiver<Stage>,
) {
    let opening = tokio::time::timeout(shared.settings.header_timeout, open(socket, peer, &shared));
    let Opened { wire, first, version, peer } = match opening.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%error, "connection not opened"),
        Err(_) => return tracing::debug!("connection not opened in time"),
    };
    // Whom the PROXY protocol names is known only now; all others have their place since they came.
    let place = shared.settings.proxy_protocol.then(|| shared.peers.enter(peer));
    if matches!(place, Some(None)) {
        return;
    }
    let tls = matches!(wire, Either::Right(_));
    let flows = (version >= Version::HTTP_2).then(Arc::default);
    let link = Link { caller: Caller::new(peer, tls), shared, traffic: Arc::default(), flows };
    let link = Arc::new(link);
    let framing = (version < Version::HTTP_2).then(Framing::default);
    let stream = Stream::new(wire, first, Arc::clone(&link.traffic), framing);
    if version < Version::HTTP_2 {
        speak_http1(stream, &link, stage).await;
        if let Some(tunnel) = link.caller.take_tunnel() {
            tunnel.await;
        }
    } else {
        // Its state is large, and most connections do without.
        Box::pin(speak_http2(stream, &link, stage)).await;
    }
}

/// Hears whose connection it is, shakes hands, and sees which version of HTTP is spoken.
async fn open<D: Answers>(
    mut socket: Socket,
    mut peer: Peer,
    shared: &Shared<D>,
) -> io::Result<Opened> {
    let settings = &shared.settings;
    send_at_once(&socket)?;
    if settings.proxy_protocol {
        let named = proxy_header(&mut socket).await?;
        if let Some(named) = named.filter(|_| shared.door.believes(peer)) {
            peer = Peer::Ip(named.ip().to_canonical());
        }
    }
    let wire = match secured(socket, settings.tls.as_ref()).await? {
        Either::Left(socket) => return sniff(socket, peer, settings.http2).await,
        Either::Right(tls) => tls,
    };
    let version = match wire.get_ref().1.alpn_protocol() {
        Some(b"h2") if settings.http2 => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    Ok(Opened { wire: Either::Right(wire), first: Bytes::new(), version, peer })
}

/// Reads the header of the PROXY protocol and not a byte more: what follows may be a handshake.
async fn proxy_header(socket: &mut Socket) -> io::Result<Option<SocketAddr>> {
    let mut bytes = [0; proxy_protocol::MAX_BYTES];
    let mut length = 0;
    loop {
        // Looked at first and taken later, because only then it is known how long it is.
        let seen = peek(socket, &mut bytes[length..]).await?;
        let parsed = proxy_protocol::parse(proxy_protocol::Version::Any, &bytes[..length + seen]);
        let taken = match parsed.map_err(|error| io::Error::other(error.to_string()))? {
            Parsed::Incomplete if seen == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Parsed::Incomplete => seen,
            Parsed::Complete { len, .. } => len - length,
        };
        socket.read_exact(&mut bytes[length..length + taken]).await?;
        length += taken;
        if let Ok(Parsed::Complete { source, .. }) = parsed {
            return Ok(source);
        }
    }
}

/// Whether a plain connection begins as HTTP/2 does.
async fn sniff(mut socket: Socket, peer: Peer, http2: bool) -> io::Result<Opened> {
    let mut first = BytesMut::new();
    while http2 && first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
        if socket.read_buf(&mut first).await? == 0 {
            break;
        }
    }
    let version = match http2 && first.starts_with(PREFACE) {
        true => Version::HTTP_2,
        false => Version::HTTP_11,
    };
    Ok(Opened { wire: Either::Left(socket), first: first.freeze(), version, peer })
}

async fn speak_http1<D: Answers>(
    stream: Stream,
    link: &Arc<Link<D>>,
    stage: watch::Receiver<Stage>,
) {
    let service = service_fn(|request| answered(Arc::clone(link), request));
    let mut http = http1::Builder::new();
    http.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES).header_read_timeout(None);
    // Not `pipeline_flush`: with it hyper never sends what it answers to a faulty head (400, 431).
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = pin!(connection);
    let ended = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = seldom(until(stage, Stage::Ending)) => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    watched(ended, link).await;
}

async fn speak_http2<D: Answers>(
    stream: Stream,
    link: &Arc<Link<D>>,
    stage: watch::Receiver<Stage>,
) {
    let service = service_fn(|request| answered(Arc::clone(link), request));
    let windows = link.shared.settings.windows;
    let mut http = http2::Builder::new(Boxing);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(windows.head_bytes)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_OWN_RESETS)
        .initial_stream_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            // GOAWAY costs nobody a request, so there is no reason to wait with it.
            () = seldom(until(stage, Stage::Closing)) => {}
            () = seldom(old(link.shared.settings.max_age)) => {}
        }
        connection.as_mut().graceful_shutdown();
        // A call that never ends by itself must not keep it for ever.
        let patience = link.shared.settings.drain_timeout;
        tokio::time::timeout(patience, connection).await.unwrap_or(Ok(()))
    };
    watched(ended, link).await;
}

async fn watched<D>(ended: impl Future<Output = hyper::Result<()>>, link: &Link<D>) {
    tokio::select! {
        biased;
        ended = ended => if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        },
        () = seldom(dawdling(&link.traffic, link.flows.as_deref(), &link.shared.settings)) => {}
    }
}

/// Waits until the stop has come so far.
pub(crate) async fn until(mut stage: watch::Receiver<Stage>, wanted: Stage) {
    // An error says that nobody is left to tell.
    let _ = stage.wait_for(|stage| *stage >= wanted).await;
}

#[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
fn answered<D: Answers>(
    link: Arc<Link<D>>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Answer<D>, Infallible>> + Send {
    async move {
        let (clear, at_work) = AtWork::begin(link);
        let link = &*at_work.0;
        let version = request.version();
        let mut response = if clear {
            link.shared.door.answer(request, &link.caller).await
        } else {
            let detail = "the headers disagree on where the request ends";
            let problem = Problem::new(StatusCode::BAD_REQUEST, detail);
            let mut response = link.shared.door.refuse(&problem);
            answer::close(&mut response);
            response
        };
        if version < Version::HTTP_2 && link.shared.status.is_draining() {
            answer::close(&mut response);
        }
        let flow = link.flows.as_ref().map(Flows::begin);
        Ok(response.map(|body| Watched { body, flow, _at_work: at_work }))
    }
}

/// Returns when a connection has been at the same thing for too long. It looks now and then rather
/// than set a timer for every request.
async fn dawdling(traffic: &Traffic, flows: Option<&Flows>, settings: &Settings) {
    let Settings { header_timeout, idle_timeout, send_timeout, .. } = *settings;
    let shortest = header_timeout.min(idle_timeout).min(send_timeout);
    let step = (shortest / 2).max(Duration::from_millis(10));
    let (mut at, mut spent) = (traffic.phase(), Duration::ZERO);
    let mut seen = Seen::default();
    loop {
        tokio::time::sleep(step).await;
        if flows.is_some_and(|flows| flows.longest(&mut seen, step) >= send_timeout) {
            return;
        }
        let now = traffic.phase();
        spent = if now == at { spent + step } else { Duration::ZERO };
        at = now;
        let patience = match at {
            Phase::Head { .. } => header_timeout,
            Phase::Idle { .. } => idle_timeout,
            Phase::Blocked { .. } => send_timeout,
            // Whoever answers has deadlines of their own, also for a body that does not come.
            Phase::Answering => continue,
        };
        if spent >= patience {
            return;
        }
    }
}
