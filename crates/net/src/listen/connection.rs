//! One HTTP connection: setup, then hyper serves it while a watchdog closes it if the peer stalls.

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

use super::accept_loop::{ListenerContext, ShutdownPhase};
use super::connection_activity::{ConnectionActivity, TrackedBody};
use super::connection_timeouts::wait_for_timeout;
use super::framing::Framing;
use super::max_connection_age::max_age_elapsed;
use super::poll_on_wake::poll_on_wake;
use super::proxy_protocol::{self, ProxyParseStatus};
use super::socket::{AcceptedSocket, peek, set_nodelay};
use super::stalled_streams::StreamTracker;
use super::stream::{ConnectionStream, MaybeTlsSocket, accept_tls};
use super::{ConnectionInfo, HttpHandler};
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, http_response};

/// Limits on an HTTP/1 request head: size and number of headers.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// HTTP/2 limits on concurrent streams and on resets. A client that exceeds the reset limits
/// receives GOAWAY (CVE-2023-44487, CVE-2024-27316, CVE-2025-8671).
pub(super) const MAX_STREAMS: u32 = 128;
const MAX_PENDING_RESETS: usize = 20;
const MAX_LOCAL_RESETS: usize = 256;

/// Interval of HTTP/2 keep-alive pings on a silent connection.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The connection preface that an HTTP/2 client sends first (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that is ready to serve requests.
struct OpenedConnection {
    wire: MaybeTlsSocket,
    /// Bytes already read to detect the HTTP version.
    sniffed_bytes: Bytes,
    version: Version,
    /// The client, after the PROXY protocol.
    peer: Peer,
}

/// Spawns each HTTP/2 response as a task. The future is boxed first: it is large, and the runtime
/// moves it several times.
#[derive(Clone, Copy)]
struct BoxingExecutor;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for BoxingExecutor {
    fn execute(&self, response: F) {
        tokio::spawn(Box::pin(response));
    }
}

/// One connection and the handler behind it.
struct ConnectionContext<D> {
    shared: Arc<ListenerContext<D>>,
    caller: ConnectionInfo,
    activity: Arc<ConnectionActivity>,
    /// `None` for HTTP/1, which has one response at a time.
    streams: Option<Arc<StreamTracker>>,
}

/// A handler's response with a body that reports its progress.
type TrackedResponse<D> = Response<TrackedBody<<D as HttpHandler>::Body, InFlightGuard<D>>>;

/// Counts a request as in flight until dropped.
struct InFlightGuard<D>(Arc<ConnectionContext<D>>);

impl<D> InFlightGuard<D> {
    /// Registers the request. The flag says whether its framing is unambiguous.
    fn start(connection: Arc<ConnectionContext<D>>) -> (bool, Self) {
        (connection.activity.start_request(), Self(connection))
    }
}

impl<D> Drop for InFlightGuard<D> {
    fn drop(&mut self) {
        self.0.activity.finish_request();
    }
}

/// Serves HTTP on a connection until it ends, times out, or is shut down after the request in
/// flight.
pub(super) async fn serve_http_connection<D: HttpHandler>(
    socket: AcceptedSocket,
    peer: Peer,
    shared: Arc<ListenerContext<D>>,
    stage: watch::Receiver<ShutdownPhase>,
) {
    let setup = tokio::time::timeout(
        shared.settings.header_timeout,
        open_connection(socket, peer, &shared),
    );
    let OpenedConnection { wire, sniffed_bytes: first, version, peer } = match setup.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%error, "connection setup failed"),
        Err(_) => return tracing::debug!("connection setup timed out"),
    };
    // Only now is the client named by the PROXY protocol known; others were counted on accept.
    let permit = shared.settings.proxy_protocol.then(|| shared.per_ip.try_acquire(peer));
    if matches!(permit, Some(None)) {
        return;
    }
    let tls = matches!(wire, Either::Right(_));
    let streams = (version >= Version::HTTP_2).then(Arc::default);
    let context = ConnectionContext {
        caller: ConnectionInfo::new(peer, tls),
        shared,
        activity: Arc::default(),
        streams,
    };
    let context = Arc::new(context);
    let framing = (version < Version::HTTP_2).then(Framing::default);
    let handler = Arc::clone(&context.shared.handler);
    let stream =
        ConnectionStream::new(wire, first, Arc::clone(&context.activity), framing, handler);
    if version < Version::HTTP_2 {
        serve_http1(stream, &context, stage).await;
        if let Some(tunnel) = context.caller.take_tunnel() {
            context.activity.begin_tunnel();
            tunnel.await;
        }
    } else {
        // Boxed because its state is large and most connections use HTTP/1.
        Box::pin(serve_http2(stream, &context, stage)).await;
    }
}

/// Reads the PROXY header, does the TLS handshake, and determines the HTTP version.
async fn open_connection<D: HttpHandler>(
    mut socket: AcceptedSocket,
    mut peer: Peer,
    shared: &ListenerContext<D>,
) -> io::Result<OpenedConnection> {
    let settings = &shared.settings;
    set_nodelay(&socket)?;
    if settings.proxy_protocol {
        let source = read_proxy_header(&mut socket).await?;
        if let Some(source) = source.filter(|_| shared.handler.trusts_peer(peer)) {
            peer = Peer::Ip(source.ip().to_canonical());
        }
    }
    let wire = match accept_tls(socket, settings.tls.as_ref()).await? {
        Either::Left(socket) => return detect_http_version(socket, peer, settings.http2).await,
        Either::Right(tls) => tls,
    };
    let version = match wire.get_ref().1.alpn_protocol() {
        Some(b"h2") if settings.http2 => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    Ok(OpenedConnection { wire: Either::Right(wire), sniffed_bytes: Bytes::new(), version, peer })
}

/// Reads a PROXY protocol header and not a byte more: a TLS handshake may follow.
async fn read_proxy_header(socket: &mut AcceptedSocket) -> io::Result<Option<SocketAddr>> {
    let mut bytes = [0; proxy_protocol::MAX_HEADER_BYTES];
    let mut length = 0;
    loop {
        // Peek first, then consume: the length is known only after parsing.
        let available = peek(socket, &mut bytes[length..]).await?;
        let parsed =
            proxy_protocol::parse(proxy_protocol::ProxyVersion::Any, &bytes[..length + available]);
        let consumed = match parsed.map_err(|error| io::Error::other(error.to_string()))? {
            ProxyParseStatus::Incomplete if available == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            ProxyParseStatus::Incomplete => available,
            ProxyParseStatus::Complete { len, .. } => len - length,
        };
        socket.read_exact(&mut bytes[length..length + consumed]).await?;
        length += consumed;
        if let Ok(ProxyParseStatus::Complete { source, .. }) = parsed {
            return Ok(source);
        }
    }
}

/// Determines whether a plain-text connection begins with the HTTP/2 preface.
async fn detect_http_version(
    mut socket: AcceptedSocket,
    peer: Peer,
    http2: bool,
) -> io::Result<OpenedConnection> {
    let mut first = BytesMut::new();
    while http2 && first.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&first) {
        if socket.read_buf(&mut first).await? == 0 {
            break;
        }
    }
    let version = match http2 && first.starts_with(HTTP2_PREFACE) {
        true => Version::HTTP_2,
        false => Version::HTTP_11,
    };
    Ok(OpenedConnection {
        wire: Either::Left(socket),
        sniffed_bytes: first.freeze(),
        version,
        peer,
    })
}

async fn serve_http1<D: HttpHandler>(
    stream: ConnectionStream,
    context: &Arc<ConnectionContext<D>>,
    stage: watch::Receiver<ShutdownPhase>,
) {
    let service = service_fn(|request| call_handler(Arc::clone(context), request));
    let mut http = http1::Builder::new();
    http.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES).header_read_timeout(None);
    // Not `pipeline_flush`: with it hyper never sends its own 400 or 431 for a faulty head.
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = pin!(connection);
    let ended = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = poll_on_wake(wait_for_phase(stage, ShutdownPhase::ClosingIdle)) => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    run_with_watchdog(ended, context).await;
}

async fn serve_http2<D: HttpHandler>(
    stream: ConnectionStream,
    context: &Arc<ConnectionContext<D>>,
    stage: watch::Receiver<ShutdownPhase>,
) {
    let service = service_fn(|request| call_handler(Arc::clone(context), request));
    let windows = context.shared.settings.windows;
    let mut http = http2::Builder::new(BoxingExecutor);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(windows.head_bytes)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .initial_stream_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            // GOAWAY loses no request, so it is sent as soon as shutdown begins.
            () = poll_on_wake(wait_for_phase(stage, ShutdownPhase::Closing)) => {}
            () = poll_on_wake(max_age_elapsed(context.shared.settings.max_age)) => {}
        }
        connection.as_mut().graceful_shutdown();
        // A stream that never ends by itself must not keep the connection open for ever.
        let drain_timeout = context.shared.settings.drain_timeout;
        tokio::time::timeout(drain_timeout, connection).await.unwrap_or(Ok(()))
    };
    run_with_watchdog(ended, context).await;
}

async fn run_with_watchdog<D>(
    ended: impl Future<Output = hyper::Result<()>>,
    context: &ConnectionContext<D>,
) {
    tokio::select! {
        biased;
        ended = ended => if let Err(error) = ended {
            tracing::debug!(%error, "connection closed with an error");
        },
        () = poll_on_wake(wait_for_timeout(&context.activity, context.streams.as_deref(), &context.shared.settings)) => {}
    }
}

/// Waits until the shutdown has reached at least this phase.
pub async fn wait_for_phase(mut stage: watch::Receiver<ShutdownPhase>, wanted: ShutdownPhase) {
    // An error means that the sender is gone, so no further phase can follow.
    let _ = stage.wait_for(|stage| *stage >= wanted).await;
}

#[expect(clippy::manual_async_fn, reason = "an `async fn` copies its arguments once more")]
fn call_handler<D: HttpHandler>(
    context: Arc<ConnectionContext<D>>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<TrackedResponse<D>, Infallible>> + Send {
    async move {
        let (unambiguous, in_flight) = InFlightGuard::start(context);
        let context = &*in_flight.0;
        let version = request.version();
        let mut response = if unambiguous {
            context.shared.handler.handle(request, &context.caller).await
        } else {
            let detail = "the headers are ambiguous about where the request ends";
            let problem = HttpError::new(StatusCode::BAD_REQUEST, detail);
            let mut response = context.shared.handler.reject(&problem);
            http_response::set_connection_close(&mut response);
            response
        };
        if version < Version::HTTP_2 && context.shared.status.is_draining() {
            http_response::set_connection_close(&mut response);
        }
        let stream = context.streams.as_ref().map(StreamTracker::track_stream);
        Ok(response.map(|body| TrackedBody { body, stream, _guard: in_flight }))
    }
}
