//! Tests the gRPC API over real sockets, with a client that can send arbitrary bytes.

mod connection_age;
mod deadline;
mod health;
mod rate_limit_calls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_api::grpc::{GrpcApi, Settings};
use tidegate_core::store::Store;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_net::listen;
use tidegate_web::ProcessStatus;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A request as Envoy sends it: domain `edge`, one descriptor `(remote_address, 192.0.2.7)`.
const ENVOY_CALL: &[u8] = b"\x0a\x04edge\x12\x1d\x0a\x1b\x0a\x0eremote_address\x12\x09192.0.2.7";

struct TestGrpcServer<S> {
    address: SocketAddr,
    limiter: Arc<Limiter<S>>,
    status: Arc<ProcessStatus>,
    stop: oneshot::Sender<()>,
    server_task: JoinHandle<()>,
}

/// The response to a call.
#[derive(Debug, PartialEq, Eq)]
struct GrpcReply {
    /// HTTP status.
    status: u16,
    /// gRPC status, from the headers or the trailers.
    code: Option<u16>,
    message: String,
    /// Body, including the length prefixes.
    body: Vec<u8>,
}

fn new_store() -> ManualMemoryStore {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_003_000_000));
    MemoryStore::with_clock(clock, DEFAULT_MAX_BYTES)
}

impl TestGrpcServer<ManualMemoryStore> {
    async fn start(rules: &str) -> Self {
        Self::start_with(rules, new_store(), Settings::default(), listen::Settings::default()).await
    }
}

impl<S: Store + 'static> TestGrpcServer<S> {
    async fn start_with(
        rules: &str,
        store: S,
        settings: Settings,
        listen: listen::Settings,
    ) -> Self {
        let rules = compile_rules(rules);
        let status = Arc::new(ProcessStatus::new());
        status.mark_rules_active(rules.version());
        let limiter = Arc::new(Limiter::new(store, rules));
        let api = GrpcApi::new(Arc::clone(&limiter), Arc::clone(&status), settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let listen = listen::Settings { http2: true, ..listen };
        let serving = listen::serve(listener, Arc::new(api), listen, Arc::clone(&status), stopped);
        let server_task = tokio::spawn(serving);
        Self { address, limiter, status, stop, server_task }
    }

    async fn connect(&self) -> GrpcTestClient {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        // As Envoy does. Otherwise the message waits until the headers are acknowledged, which
        // takes 40 ms.
        tcp.set_nodelay(true).unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
        let (sender, connection) = handshake.unwrap();
        GrpcTestClient { sender, connection: tokio::spawn(connection) }
    }

    /// Makes one call over a new connection.
    async fn call_once(&self, message: &[u8]) -> GrpcReply {
        self.connect().await.call(SHOULD_RATE_LIMIT, encode_frame(message), &[]).await
    }
}

/// A message, or a body that never arrives.
type GrpcRequestBody = Either<Full<Bytes>, PendingBody>;

struct PendingBody;

impl Body for PendingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

struct GrpcTestClient {
    sender: http2::SendRequest<GrpcRequestBody>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl GrpcTestClient {
    async fn call(
        &mut self,
        path: &str,
        body: Vec<u8>,
        headers: &[(&'static str, &str)],
    ) -> GrpcReply {
        read_reply(self.send(path, body, headers).await).await
    }

    /// Returns the response head without reading the body.
    async fn send(
        &mut self,
        path: &str,
        body: Vec<u8>,
        headers: &[(&'static str, &str)],
    ) -> Response<Incoming> {
        self.send_body(path, Either::Left(Full::new(body.into())), headers).await
    }

    async fn send_body(
        &mut self,
        path: &str,
        body: GrpcRequestBody,
        headers: &[(&'static str, &str)],
    ) -> Response<Incoming> {
        let mut request = Request::post(format!("http://tidegate{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body)
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        self.sender.send_request(request).await.unwrap()
    }
}

async fn read_reply(response: Response<Incoming>) -> GrpcReply {
    let status = response.status().as_u16();
    let mut headers = response.headers().clone();
    let collected = response.into_body().collect().await.unwrap();
    headers.extend(collected.trailers().cloned().unwrap_or_default());
    let text = |headers: &HeaderMap, name| Some(headers.get(name)?.to_str().unwrap().to_owned());
    GrpcReply {
        status,
        code: text(&headers, "grpc-status").map(|code| code.parse().unwrap()),
        message: text(&headers, "grpc-message").unwrap_or_default(),
        body: collected.to_bytes().to_vec(),
    }
}

/// Adds the length prefix to a message.
fn encode_frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}
