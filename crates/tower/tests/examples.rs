//! Runs the examples of this crate.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

#[allow(dead_code, reason = "the tests call the functions that `main` calls")]
#[path = "../examples/axum_service.rs"]
mod axum_service;
#[allow(dead_code, reason = "the tests call the functions that `main` calls")]
#[path = "../examples/failed_logins.rs"]
mod failed_logins;
#[allow(dead_code, reason = "the tests call the functions that `main` calls")]
#[path = "../examples/hyper_service.rs"]
mod hyper_service;
#[allow(dead_code, reason = "the tests call the functions that `main` calls")]
#[path = "../examples/llm_tokens.rs"]
mod llm_tokens;
#[allow(dead_code, reason = "the tests call the functions that `main` calls")]
#[path = "../examples/tonic_service.rs"]
mod tonic_service;

use axum::body::Body;
use bytes::Bytes;
use common::{body_text, count_admitted, get, request, send, status, with_header};
use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate::Facts;
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn axum_service_limits_by_route_and_tier() {
    let app = axum_service::app(axum_service::limiter().unwrap()).unwrap();
    let with_key = |path: &'static str, key| move || with_header(get(path), "x-api-key", key);
    assert_eq!(count_admitted(&app, 20, with_key("/items/1", "unknown")).await, 10);
    assert_eq!(count_admitted(&app, 50, with_key("/items/1", "acme-1")).await, 50);
    let quota = send(&app, with_key("/quota", "acme-1")()).await;
    assert!(body_text(quota).await.ends_with("requests left\n"));
    assert_eq!(count_admitted(&app, 9, || request(Method::POST, "/items/1")).await, 5);
}

#[tokio::test]
async fn login_example_counts_failures_only() {
    let app = failed_logins::app().unwrap();
    let attempt = |password: &'static str| {
        let mut request = request(Method::POST, "/login?user=ada");
        *request.body_mut() = Body::from(password);
        status(&app, request)
    };
    for _ in 0..30 {
        assert_eq!(attempt("correct horse").await, StatusCode::NO_CONTENT);
    }
    for _ in 0..5 {
        assert_eq!(attempt("guess").await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(attempt("guess").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(attempt("correct horse").await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn llm_example_settles_tokens() {
    let tokens = llm_tokens::token_limiter().unwrap();
    let app = llm_tokens::app(tokens.clone()).unwrap();
    let ask = |body: &'static str| {
        let mut request = request(Method::POST, "/chat");
        *request.body_mut() = Body::from(body);
        send(
            &app,
            with_header(with_header(request, "x-api-key", "k"), "content-type", "application/json"),
        )
    };
    let used = || {
        let left = tokens.peek_now(&Facts::from([("api_key", "k")])).remaining().unwrap();
        // Some may have drained meanwhile.
        40_000 - left
    };
    let answer = body_text(ask(r#"{"prompt":"Hi","max_tokens":30000}"#).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["tokens"], &answer["requests_left"]), (&1_200.into(), &59.into()));
    assert!(used() <= 1_200, "{} tokens", used());
    let failed = ask(r#"{"max_tokens":30000}"#).await;
    assert_eq!(failed.status(), StatusCode::BAD_GATEWAY);
    assert!(used() <= 1_200, "a failed call costs nothing: {} tokens", used());
    let refused = ask(r#"{"prompt":"Hi","max_tokens":40001}"#).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn tonic_example_refuses_with_resource_exhausted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(tonic_service::serve(listener));
    let channel = Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    for _ in 0..3 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    let refused = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    assert!((1..=20_000).contains(&pushback.parse::<u64>().unwrap()), "{pushback}");
    server.abort();
}

#[tokio::test]
async fn hyper_example_limits_connections_of_one_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(hyper_service::serve(listener));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        statuses.push(sender.send_request(request).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    server.abort();
}
