//! Responses that the gateway generates itself, and charges for requests that reach no upstream.

use std::collections::HashSet;

use tidegate_gateway::{Settings, UpstreamTimeouts};
use tidegate_net::listen;
use tokio::net::TcpListener;

use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::raw_client::RawResponse;

const TEN_PER_HOUR: &str = "rules: [{ id: ten, key_by: global, limit: 10/h }]";

/// Sends bytes on a new connection and reads one response.
async fn exchange(gate: &TestGateway, bytes: &str) -> RawResponse {
    let mut caller = gate.connect().await;
    caller.send(bytes.as_bytes()).await;
    caller.read_response().await.unwrap()
}

/// An address without a listener.
async fn unused_address() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let upstream = ScriptedUpstream::start().await;
    let gate =
        TestGateway::start("rules: [{ id: one, key_by: global, limit: 1/h }]", upstream.address)
            .await;
    let mut ids = HashSet::new();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 429),
        ("GET /%2f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    ] {
        let response = exchange(&gate, request).await;
        assert_eq!(response.status, status, "{request}");
        let id = response.header("x-request-id").expect(request).to_owned();
        assert!(id.len() == 32 && ids.insert(id), "{response:?}");
    }
}

#[tokio::test]
async fn trusted_request_id_is_echoed() {
    let rules = "identity: { ip: { trusted_proxies: [127.0.0.1] } }\n\
                 rules: [{ id: none, key_by: global, limit: { requests: deny } }]";
    let gate = TestGateway::start_with(
        rules,
        settings_for(&[unused_address().await]),
        listen::Settings::default(),
    )
    .await;
    for path in ["/", "/%2f"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: theirs\r\n\r\n");
        assert_eq!(
            exchange(&gate, &request).await.header("x-request-id"),
            Some("theirs"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn failed_upstream_request_is_charged() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let malformed =
        ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(b"nonsense".to_vec()))
            .await;
    let hour = std::time::Duration::from_secs(3_600);
    let mut silent = ScriptedUpstream::start_replying(move |_| {
        UpstreamReply::SendAfter(hour, ok_response("late"))
    })
    .await;
    for (upstream, status) in
        [(malformed.address, 502), (unused_address().await, 502), (silent.address, 504)]
    {
        let mut settings = settings_for(&[upstream]);
        let response = std::time::Duration::from_millis(50);
        settings.upstreams[0].timeouts =
            UpstreamTimeouts { response, ..UpstreamTimeouts::default() };
        let gate =
            TestGateway::start_with(TEN_PER_HOUR, settings, listen::Settings::default()).await;
        for left in ["9", "8"] {
            let response = exchange(&gate, request).await;
            assert_eq!(response.status, status);
            assert_eq!(response.header("x-ratelimit-remaining"), Some(left), "{response:?}");
            assert_eq!(response.header("ratelimit-policy"), Some("\"ten\";q=10;w=3600"));
            assert!(response.header("x-request-id").is_some());
        }
    }
    silent.next_request().await;
}

/// The remaining quota of the only rule.
async fn remaining(gate: &TestGateway) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

fn refunding_settings(upstreams: &[std::net::SocketAddr]) -> Settings {
    Settings { refund_unreachable: true, ..settings_for(upstreams) }
}

#[tokio::test]
async fn unreachable_upstream_refunds_the_charge() {
    let closed = [unused_address().await, unused_address().await];
    let body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n".to_owned()
        + &"a".repeat(3_000);
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    for (rules, all) in [
        (TEN_PER_HOUR, 10),
        ("rules: [{ id: r, key_by: global, limit: 10/h, cost: { body: 1KiB } }]", 10),
        ("rules: [{ id: r, key_by: global, limit: { concurrent: 2 } }]", 2),
    ] {
        let gate = TestGateway::start_with(
            rules,
            refunding_settings(&closed),
            listen::Settings::default(),
        )
        .await;
        for request in [&body, upgrade, &body] {
            assert_eq!(exchange(&gate, request).await.status, 502);
            assert_eq!(remaining(&gate).await, all, "{rules}");
        }
    }
}

#[tokio::test]
async fn sent_request_is_not_refunded() {
    let closing =
        ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(Vec::new())).await;
    let gate = TestGateway::start_with(
        TEN_PER_HOUR,
        refunding_settings(&[closing.address]),
        listen::Settings::default(),
    )
    .await;
    assert_eq!(exchange(&gate, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 502);
    assert_eq!(remaining(&gate).await, 9);
}
