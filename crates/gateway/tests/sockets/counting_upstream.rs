//! An upstream that counts the bytes of each request body it receives.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the upstream does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamBehavior {
    /// Reads the whole body and responds.
    Responds,
    /// Reads the whole body and never responds.
    NeverResponds,
    /// Aborts after it has read this many bytes.
    AbortsAfter(u64),
}

/// A running upstream.
pub(super) struct CountingUpstream {
    pub(super) url: String,
    started_requests: UnboundedReceiver<()>,
    received_sizes: UnboundedReceiver<u64>,
}

/// The bytes of one body, reported when reading ends.
struct BodyByteCounter {
    bytes: u64,
    size_sender: UnboundedSender<u64>,
}

impl Drop for BodyByteCounter {
    fn drop(&mut self) {
        let _ = self.size_sender.send(self.bytes);
    }
}

impl CountingUpstream {
    pub(super) async fn start(behavior: UpstreamBehavior, speaks_http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let ((start_sender, started_requests), (size_sender, received_sizes)) =
            (unbounded_channel(), unbounded_channel());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve_connection(
                    tcp,
                    behavior,
                    speaks_http2,
                    start_sender.clone(),
                    size_sender.clone(),
                ));
            }
        });
        let scheme = if speaks_http2 { "h2c" } else { "http" };
        Self { url: format!("{scheme}://{address}"), started_requests, received_sizes }
    }

    /// Waits until a request has arrived.
    pub(super) async fn wait_for_request(&mut self) {
        self.started_requests.recv().await.unwrap();
    }

    /// The number of bytes received of a body, once reading has ended.
    pub(super) async fn received_bytes(&mut self) -> u64 {
        self.received_sizes.recv().await.unwrap()
    }
}

async fn serve_connection(
    tcp: TcpStream,
    behavior: UpstreamBehavior,
    speaks_http2: bool,
    start_sender: UnboundedSender<()>,
    size_sender: UnboundedSender<u64>,
) {
    let (start_sender, size_sender) = (Arc::new(start_sender), Arc::new(size_sender));
    let service = service_fn(|request| {
        start_sender.send(()).unwrap();
        consume_request(request, behavior, UnboundedSender::clone(&size_sender))
    });
    let io = TokioIo::new(tcp);
    let _ = match speaks_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        false => http1::Builder::new().serve_connection(io, service).await,
    };
}

async fn consume_request(
    request: Request<Incoming>,
    behavior: UpstreamBehavior,
    size_sender: UnboundedSender<u64>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let mut received = BodyByteCounter { bytes: 0, size_sender };
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        received.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if matches!(behavior, UpstreamBehavior::AbortsAfter(after) if received.bytes >= after) {
            return Err("aborted by the test");
        }
    }
    drop(received);
    if behavior == UpstreamBehavior::NeverResponds {
        std::future::pending::<Infallible>().await;
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"taken"))))
}
