//! An upstream that counts the bytes of each body that reach it, and need not wait for the end.

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

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamBehavior {
    /// Reads it to its end and answers.
    Responds,
    /// Reads it to its end and says nothing.
    NeverResponds,
    /// Breaks off when it has read this much.
    AbortsAfter(u64),
}

/// The upstream.
pub(super) struct CountingUpstream {
    pub(super) url: String,
    started_requests: UnboundedReceiver<()>,
    received_sizes: UnboundedReceiver<u64>,
}

/// The bytes of one body, reported when nothing more of it is read.
struct BodyByteCounter {
    bytes: u64,
    ended: UnboundedSender<u64>,
}

impl Drop for BodyByteCounter {
    fn drop(&mut self) {
        let _ = self.ended.send(self.bytes);
    }
}

impl CountingUpstream {
    pub(super) async fn start(manners: UpstreamBehavior, speaks_http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let ((begin, begun), (end, ended)) = (unbounded_channel(), unbounded_channel());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve_connection(
                    tcp,
                    manners,
                    speaks_http2,
                    begin.clone(),
                    end.clone(),
                ));
            }
        });
        let scheme = if speaks_http2 { "h2c" } else { "http" };
        Self {
            url: format!("{scheme}://{address}"),
            started_requests: begun,
            received_sizes: ended,
        }
    }

    /// Returns when a request has come.
    pub(super) async fn wait_for_request(&mut self) {
        self.started_requests.recv().await.unwrap();
    }

    /// How much of a request's body came, once no more can come.
    pub(super) async fn received_bytes(&mut self) -> u64 {
        self.received_sizes.recv().await.unwrap()
    }
}

async fn serve_connection(
    tcp: TcpStream,
    manners: UpstreamBehavior,
    speaks_http2: bool,
    begin: UnboundedSender<()>,
    end: UnboundedSender<u64>,
) {
    let (begin, end) = (Arc::new(begin), Arc::new(end));
    let service = service_fn(|request| {
        begin.send(()).unwrap();
        consume_request(request, manners, UnboundedSender::clone(&end))
    });
    let io = TokioIo::new(tcp);
    let _ = match speaks_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        false => http1::Builder::new().serve_connection(io, service).await,
    };
}

async fn consume_request(
    request: Request<Incoming>,
    manners: UpstreamBehavior,
    ended: UnboundedSender<u64>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let mut received = BodyByteCounter { bytes: 0, ended };
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        received.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if matches!(manners, UpstreamBehavior::AbortsAfter(after) if received.bytes >= after) {
            return Err("it breaks off");
        }
    }
    drop(received);
    if manners == UpstreamBehavior::NeverResponds {
        std::future::pending::<Infallible>().await;
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"taken"))))
}
