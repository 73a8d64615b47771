//! Protocol upgrades: accepted, declined, denied and unsupported.

use super::UNREACHED_LIMIT;
use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::TestGateway;
use tidegate_fixtures::server::TEN_PER_HOUR;

const UPGRADE_REQUEST: &[u8] =
    b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const SWITCHING_PROTOCOLS: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

#[tokio::test]
async fn accepted_upgrade_copies_both_ways() {
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::Echo(SWITCHING_PROTOCOLS.to_vec()))
            .await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(UPGRADE_REQUEST).await;
    let seen = upstream.next_request().await;
    assert!(seen.contains("upgrade: websocket\r\n"), "{seen}");
    assert!(seen.contains("connection: upgrade\r\n"), "{seen}");
    assert!(seen.contains("sec-websocket-key: x\r\n"), "{seen}");
    let response = caller.read_response().await.unwrap();
    assert_eq!((response.status, response.header("upgrade")), (101, Some("websocket")));
    assert_eq!(response.header("sec-websocket-accept"), Some("y"));
    assert_eq!(response.header("x-ratelimit-limit"), Some("1000000"));
    for text in ["\x01\x02 frames", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        caller.send(text.as_bytes()).await;
        assert_eq!(caller.read_until(text.as_bytes()).await, text);
    }
    assert_eq!(
        upstream.received_requests(),
        Vec::<String>::new(),
        "bytes in the tunnel are not requests"
    );
}

#[tokio::test]
async fn declined_upgrade_is_an_ordinary_response() {
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::Send(ok_response("no"))).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    for _ in 0..3 {
        caller.send(UPGRADE_REQUEST).await;
        assert_eq!(caller.read_response().await.unwrap().body, "no");
        assert_eq!(caller.request("GET", "/", b"").await.body, "no");
    }
    assert_eq!(upstream.received_requests().len(), 6);
}

#[tokio::test]
async fn denied_upgrade_opens_no_tunnel() {
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::Echo(SWITCHING_PROTOCOLS.to_vec()))
            .await;
    let gate = TestGateway::start(&TEN_PER_HOUR.replace("10/h", "1/h"), upstream.address).await;
    let mut first = gate.connect().await;
    first.send(UPGRADE_REQUEST).await;
    assert_eq!(first.read_response().await.unwrap().status, 101);
    upstream.next_request().await;
    let mut second = gate.connect().await;
    second.send(UPGRADE_REQUEST).await;
    assert_eq!(second.read_response().await.unwrap().status, 429);
    second.send(b"GET /inside HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(second.read_response().await.unwrap().status, 429, "parsed as a request");
    assert_eq!(upstream.received_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn h2c_upgrade_is_not_forwarded() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller
        .send(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
              HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        )
        .await;
    assert_eq!(caller.read_response().await.unwrap().status, 200);
    let seen = upstream.next_request().await;
    assert!(!seen.to_lowercase().contains("upgrade") && !seen.contains("http2"), "{seen}");
}
