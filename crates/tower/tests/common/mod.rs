//! Requests, limiters and answers that several suites use.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "each suite uses a part")]

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::{HeaderMap, Method, Request, StatusCode};
use tidegate::{Limiter, LimiterBuilder, ManualClock, MemoryStore, Timestamp};
use tidegate_tower::PeerAddress;
use tower::ServiceExt as _;

pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

pub(crate) type ManualLimiter = Limiter<MemoryStore<ManualClock>>;

/// A builder with a clock that stands still.
pub(crate) fn builder() -> (LimiterBuilder<ManualClock>, ManualClock) {
    let clock = ManualClock::new(START);
    (Limiter::builder().clock(clock.clone()), clock)
}

pub(crate) fn limiter(rules: &str) -> ManualLimiter {
    builder().0.rules(rules).build().unwrap()
}

pub(crate) fn limiter_of(limit: &str) -> ManualLimiter {
    builder().0.limit(limit).build().unwrap()
}

/// A request from 192.0.2.1.
pub(crate) fn request(method: Method, path: &str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request.extensions_mut().insert(PeerAddress::from(IpAddr::from([192, 0, 2, 1])));
    request
}

pub(crate) fn get(path: &str) -> Request<Body> {
    request(Method::GET, path)
}

/// Adds or replaces a header.
pub(crate) fn with_header(
    mut request: Request<Body>,
    name: &'static str,
    value: &str,
) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

pub(crate) fn from_peer(mut request: Request<Body>, peer: &str) -> Request<Body> {
    let peer: IpAddr = peer.parse().unwrap();
    request.extensions_mut().insert(PeerAddress::from(SocketAddr::new(peer, 4_321)));
    request
}

/// Sends a request to a clone of the service.
pub(crate) async fn send(app: &Router, request: Request<Body>) -> Response {
    app.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn status(app: &Router, request: Request<Body>) -> StatusCode {
    send(app, request).await.status()
}

/// Sends the same request several times and returns how many were admitted.
pub(crate) async fn count_admitted(
    app: &Router,
    times: usize,
    request: impl Fn() -> Request<Body>,
) -> usize {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += usize::from(status(app, request()).await != StatusCode::TOO_MANY_REQUESTS);
    }
    admitted
}

pub(crate) async fn body_text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.into()).unwrap()
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

/// Lets other tasks run until `condition` holds.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("not reached: {what}");
}

/// Lets the tasks run that wait for nothing, so that what they do wrongly is seen.
pub(crate) async fn run_other_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
