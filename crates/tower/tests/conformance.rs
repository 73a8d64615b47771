//! The layer passes the conformance file of the middlewares for other languages.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::middleware::map_request;
use http::{HeaderName, HeaderValue, Request};
use tidegate_fixtures::conformance::{
    ConformanceFile, ConformanceRequest, ConformanceSection, ObservedResponse,
};
use tidegate_tower::{PeerAddress, RateLimitLayer};
use tower::ServiceExt as _;

use common::limiter;

/// The header from which the rules read the cost that the application supplies.
const COST: HeaderName = HeaderName::from_static("tidegate-fact-cost");

#[tokio::test]
async fn conformance_file_passes() {
    let file = ConformanceFile::load();
    let handled = Arc::new(AtomicBool::new(false));
    let app = application(&file.rules.to_string(), &handled);
    let sections =
        [ConformanceSection::Core, ConformanceSection::Headers, ConformanceSection::Callbacks];
    for case in file.cases_in(&sections) {
        for request in &case.requests {
            for _ in 0..request.repeat {
                handled.store(false, Relaxed);
                let observed = send(&app, request).await;
                request.expect.assert_matches(&case.name, &observed, handled.load(Relaxed));
            }
        }
    }
}

/// The application that `clients/README.md` describes.
fn application(rules: &str, handled: &Arc<AtomicBool>) -> Router {
    let layer = RateLimitLayer::new(limiter(rules)).unwrap().with_facts(|request, facts| {
        if let Some(session) = request.headers.get("x-session") {
            facts.set("user_id", session.to_str().unwrap());
        }
    });
    let handled = Arc::clone(handled);
    let handler = move || async move {
        handled.store(true, Relaxed);
        ([("x-handled", "yes")], "handled")
    };
    Router::new()
        .fallback(handler.clone())
        .layer(layer)
        .layer(map_request(set_cost))
        .route("/skipped", axum::routing::any(handler))
}

/// Sets the cost to the header `x-points`, whatever the client says.
async fn set_cost(mut request: Request<Body>) -> Request<Body> {
    let points = request.headers().get("x-points").cloned();
    request.headers_mut().remove(COST);
    if let Some(points) = points {
        request.headers_mut().insert(COST, points);
    }
    request
}

async fn send(app: &Router, sent: &ConformanceRequest) -> ObservedResponse {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = sent.method.parse().unwrap();
    *request.uri_mut() = sent.path.parse().unwrap();
    for (name, value) in sent.headers_with_host() {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        request.headers_mut().append(HeaderName::try_from(name).unwrap(), value);
    }
    let peer: IpAddr = sent.peer;
    request.extensions_mut().insert(PeerAddress::from(SocketAddr::new(peer, 4_321)));
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    ObservedResponse {
        status: head.status.as_u16(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().into()).unwrap(),
    }
}
