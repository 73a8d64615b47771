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
pub(super) enum Manners {
    /// Reads it to its end and answers.
    Answers,
    /// Reads it to its end and says nothing.
    IsSilent,
    /// Breaks off when it has read this much.
    BreaksOff(u64),
}

/// The upstream.
pub(super) struct Sink {
    pub(super) url: String,
    begun: UnboundedReceiver<()>,
    ended: UnboundedReceiver<u64>,
}

/// The bytes of one body, reported when nothing more of it is read.
struct Received {
    bytes: u64,
    ended: UnboundedSender<u64>,
}

impl Drop for Received {
    fn drop(&mut self) {
        let _ = self.ended.send(self.bytes);
    }
}

impl Sink {
    pub(super) async fn start(manners: Manners, speaks_http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let ((begin, begun), (end, ended)) = (unbounded_channel(), unbounded_channel());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp, manners, speaks_http2, begin.clone(), end.clone()));
            }
        });
        let scheme = if speaks_http2 { "h2c" } else { "http" };
        Self { url: format!("{scheme}://{address}"), begun, ended }
    }

    /// Returns when a request has come.
    pub(super) async fn begun(&mut self) {
        self.begun.recv().await.unwrap();
    }

    /// How much of a request's body came, once no more can come.
    pub(super) async fn received(&mut self) -> u64 {
        self.ended.recv().await.unwrap()
    }
}

async fn serve(
    tcp: TcpStream,
    manners: Manners,
    speaks_http2: bool,
    begin: UnboundedSender<()>,
    end: UnboundedSender<u64>,
) {
    let (begin, end) = (Arc::new(begin), Arc::new(end));
    let service = service_fn(|request| {
        begin.send(()).unwrap();
        take(request, manners, UnboundedSender::clone(&end))
    });
    let io = TokioIo::new(tcp);
    let _ = match speaks_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        false => http1::Builder::new().serve_connection(io, service).await,
    };
}

async fn take(
    request: Request<Incoming>,
    manners: Manners,
    ended: UnboundedSender<u64>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let mut received = Received { bytes: 0, ended };
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        received.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if matches!(manners, Manners::BreaksOff(after) if received.bytes >= after) {
            return Err("it breaks off");
        }
    }
    drop(received);
    if manners == Manners::IsSilent {
        std::future::pending::<Infallible>().await;
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"taken"))))
}
