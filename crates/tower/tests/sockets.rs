//! Bursts over real connections: of any number of concurrent requests, exactly the limit passes.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use common::limiter_of;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_tower::RateLimitLayer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

const CONNECTIONS: usize = 200;
const REQUESTS_PER_CONNECTION: usize = 5;
const LIMIT: usize = 300;

/// Serves clones of one router on several listeners.
async fn serve_clones(listeners: usize) -> Vec<SocketAddr> {
    let layer = RateLimitLayer::new(limiter_of(&format!("{LIMIT}/h by ip"))).unwrap();
    let app = Router::new().fallback(|| async { "handled" }).layer(layer);
    let mut addresses = Vec::new();
    for _ in 0..listeners {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let service = app.clone().into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    }
    addresses
}

fn request(address: SocketAddr) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::try_from(format!("http://{address}/")).unwrap();
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    request
}

async fn is_admitted(response: hyper::Result<Response<Incoming>>) -> bool {
    let response = response.unwrap();
    let status = response.status();
    response.into_body().collect().await.unwrap();
    assert!(status == StatusCode::OK || status == StatusCode::TOO_MANY_REQUESTS, "{status}");
    status == StatusCode::OK
}

async fn http1_burst(address: SocketAddr, start: Arc<Barrier>) -> usize {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    start.wait().await;
    let mut admitted = 0;
    for _ in 0..REQUESTS_PER_CONNECTION {
        admitted += usize::from(is_admitted(sender.send_request(request(address)).await).await);
    }
    admitted
}

async fn http2_burst(address: SocketAddr, start: Arc<Barrier>) -> usize {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    start.wait().await;
    let mut requests = Vec::new();
    for _ in 0..REQUESTS_PER_CONNECTION {
        let mut sender = sender.clone();
        requests.push(tokio::spawn(async move {
            let mut request = request(address);
            request.headers_mut().remove("host");
            is_admitted(sender.send_request(request).await).await
        }));
    }
    let mut admitted = 0;
    for request in requests {
        admitted += usize::from(request.await.unwrap());
    }
    admitted
}

/// Runs a burst on all connections at once and returns the number of admitted requests.
async fn count_admitted<F: Future<Output = usize> + Send + 'static>(
    burst: fn(SocketAddr, Arc<Barrier>) -> F,
) -> usize {
    let addresses = serve_clones(4).await;
    let start = Arc::new(Barrier::new(CONNECTIONS));
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|number| tokio::spawn(burst(addresses[number % 4], Arc::clone(&start))))
        .collect();
    let mut admitted = 0;
    for connection in connections {
        admitted += connection.await.unwrap();
    }
    admitted
}

/// FIELD.md part 2, section 3: each connection of axum has a clone of the service, and a limit per
/// clone does not limit (tokio-rs/axum#2634, #278, #876).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_burst_admits_exactly_limit() {
    assert_eq!(count_admitted(http1_burst).await, LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_burst_admits_exactly_limit() {
    assert_eq!(count_admitted(http2_burst).await, LIMIT);
}
