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
    let too_many_headers = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(101));
    let mut ids = HashSet::new();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 429),
        ("GET /%2f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (&too_many_headers, 431),
    ] {
        let response = exchange(&gate, request).await;
        assert_eq!(response.status, status, "{request}");
        let id = response.header("x-request-id").expect(request).to_owned();
        assert!(id.len() == 32 && ids.insert(id), "{response:?}");
    }
}

/// What follows responses of the handler on one connection, and what looks like one of hyper's
/// responses but comes from the upstream.
#[tokio::test]
async fn only_unparsable_heads_get_an_added_id() {
    let forged = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let upstream =
        ScriptedUpstream::start_replying(|request| match request.starts_with("GET /up") {
            true => UpstreamReply::SendAndClose(
                [b"HTTP/1.1 101 OK\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", &forged[..]]
                    .concat(),
            ),
            false => UpstreamReply::Send(ok_response("a")),
        })
        .await;
    let gate = TestGateway::start(TEN_PER_HOUR, upstream.address).await;
    let mut caller = gate.connect().await;
    for _ in 0..2 {
        let response = caller.request("GET", "/", b"").await;
        assert_eq!(response.headers.iter().filter(|(name, _)| name == "x-request-id").count(), 1);
    }
    caller.send(b"GET / HTTP/1.1\r\nHost a\r\n\r\n").await;
    let response = caller.read_response().await.unwrap();
    assert_eq!(response.status, 400);
    assert!(response.header("x-request-id").is_some());

    let mut caller = gate.connect().await;
    caller.send(b"GET /up HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n").await;
    assert_eq!(caller.read_response().await.unwrap().status, 101);
    let tunneled = caller.read_response().await.unwrap();
    assert_eq!((tunneled.status, tunneled.header("x-request-id")), (400, None));
}

/// The status of each response in these bytes, and how often it has the header.
fn statuses_and_ids(bytes: &str) -> Vec<(&str, usize)> {
    let responses = bytes.split("HTTP/1.1 ").skip(1);
    responses.map(|text| (&text[..3], text.matches("\r\nx-request-id: ").count())).collect()
}

#[tokio::test]
async fn pipelined_responses_have_one_id_each() {
    let upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(TEN_PER_HOUR, upstream.address).await;
    let mut caller = gate.connect().await;
    let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n\
         POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nb\
         GET / HTTP/1.1\r\nHost a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    caller.send(requests.as_bytes()).await;
    let responses = caller.read_to_end().await;
    let expected = [("200", 1), ("200", 1), ("100", 0), ("200", 1), ("400", 1)];
    assert_eq!(statuses_and_ids(&responses), expected, "{responses}");
    assert_eq!(responses.matches("hello").count(), 2, "{responses}");
    let mut caller = gate.connect().await;
    caller.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nHost: a\r\n\r\nG=\r\n\r\n").await;
    let responses = caller.read_to_end().await.replace("HTTP/1.0", "HTTP/1.1");
    assert_eq!(statuses_and_ids(&responses), [("200", 1), ("400", 1)], "{responses}");
}

/// The response is larger than the buffers of the sockets, so most writes are partial.
#[tokio::test]
async fn unparsable_head_behind_large_response_keeps_its_bytes() {
    let body = "0123456789abcdef".repeat(1 << 20);
    let response = ok_response(&body);
    let upstream =
        ScriptedUpstream::start_replying(move |_| UpstreamReply::Send(response.clone())).await;
    let gate = TestGateway::start(TEN_PER_HOUR, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost a\r\n\r\n").await;
    let received = caller.read_to_end().await;
    assert_eq!(statuses_and_ids(&received), [("200", 1), ("400", 1)]);
    let (_, rest) = received.split_once("\r\n\r\n").unwrap();
    assert!(rest.starts_with(&body), "{:?}", rest.get(..200));
    assert!(rest[body.len()..].starts_with("HTTP/1.1 400 Bad Request\r\nx-request-id: "));
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
