//! Methods in any case: the rules count them alike, and the upstream receives one spelling.

use std::collections::HashMap;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use super::http2::connect_http2;
use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::TestGateway;
use tidegate_fixtures::generators::{MethodSpelling, random_method_spellings};
use tidegate_fixtures::raw_client::encode_request;
use tidegate_fixtures::server::TestServer;

/// Each method has its own counter; no test exhausts one.
const PER_METHOD: &str = "rules: [{ id: each, key_by: method, limit: 1000000/h }]";

/// The expected remaining quota of each method's counter.
#[derive(Default)]
struct RemainingByMethod(HashMap<&'static str, u64>);

impl RemainingByMethod {
    /// Counts one more request; returns the expected remaining quota.
    fn charge(&mut self, method: &'static str) -> String {
        let left = self.0.entry(method).or_insert(1_000_000);
        *left -= 1;
        left.to_string()
    }
}

#[tokio::test]
async fn method_case_is_normalized_by_gateway() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(PER_METHOD, upstream.address).await;
    let (mut caller, mut client) = (gate.connect().await, connect_http2(&gate).await);
    let mut left = RemainingByMethod::default();
    for (at, MethodSpelling { method, spelling }) in
        random_method_spellings(100).into_iter().enumerate()
    {
        let expected = left.charge(method);
        let remaining = if at % 2 == 0 {
            let response = caller.request(&spelling, "/", b"").await;
            response.header("x-ratelimit-remaining").map(str::to_owned)
        } else {
            let request = Request::builder().method(&*spelling).uri("http://a/");
            let request = request.body(Full::new(Bytes::new())).unwrap();
            let response = client.send_request(request).await.unwrap();
            let remaining = response.headers().get("x-ratelimit-remaining");
            remaining.map(|remaining| remaining.to_str().unwrap().to_owned())
        };
        assert_eq!(remaining, Some(expected), "{spelling}");
        let seen = upstream.next_request().await;
        assert!(seen.starts_with(&format!("{method} / HTTP/1.1\r\n")), "{spelling}: {seen}");
    }
}

#[tokio::test]
async fn method_case_is_normalized_by_apis() {
    let rules = format!("identity: {{ ip: {{ trusted_proxies: [127.0.0.1] }} }}\n{PER_METHOD}");
    let server = TestServer::start(&rules).await;
    let mut caller = server.connect().await;
    let mut left = RemainingByMethod::default();
    for (at, MethodSpelling { method, spelling }) in
        random_method_spellings(100).into_iter().enumerate()
    {
        let response = if at % 2 == 0 {
            let head = format!(
                "GET /v1/forward-auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: {spelling}\r\n\
                 X-Original-Method: {method}\r\nX-Forwarded-Uri: /\r\n\r\n"
            );
            caller.send(head.as_bytes()).await;
            caller.read_response().await.unwrap()
        } else {
            let facts = format!(r#"{{"facts":{{"method":"{spelling}"}}}}"#);
            caller.post("/v1/check", &facts).await
        };
        let remaining = response.header("x-ratelimit-remaining").map(str::to_owned);
        assert_eq!(remaining, Some(left.charge(method)), "{spelling}: {response:?}");
    }
}

/// HTTP libraries do not treat `head` as HEAD, so they expect a body.
#[tokio::test]
async fn lowercase_head_response_has_consistent_length() {
    let upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(PER_METHOD, upstream.address).await;
    let mut caller = gate.connect().await;
    caller
        .send(&[encode_request("head", "/", b""), encode_request("GET", "/", b"")].concat())
        .await;
    let response = caller.read_response().await.unwrap();
    assert_eq!((response.status, response.header("content-length")), (200, Some("0")));
    let next = caller.read_response().await.unwrap();
    assert_eq!((next.status, next.body.as_str()), (200, "hello"));
    let request = Request::builder().method("head").uri("http://a/").body(Full::default()).unwrap();
    let response = connect_http2(&gate).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().get("content-length"), None);
}
