//! Connections that change their protocol, and those that must not.

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, MANY};
use crate::house::TEN;

const ASK: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const AGREE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

#[tokio::test]
async fn bytes_pass_both_ways_once_the_upstream_has_agreed() {
    let mut upstream = Upstream::replying(|_| Reply::Echo(AGREE.to_vec())).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(ASK).await;
    let seen = upstream.request().await;
    assert!(seen.contains("upgrade: websocket\r\n"), "{seen}");
    assert!(seen.contains("connection: upgrade\r\n"), "{seen}");
    assert!(seen.contains("sec-websocket-key: x\r\n"), "{seen}");
    let answer = caller.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!(answer.header("sec-websocket-accept"), Some("y"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1000000"));
    for text in ["\x01\x02 frames", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        caller.send(text.as_bytes()).await;
        assert_eq!(caller.raw_until(text.as_bytes()).await, text);
    }
    assert_eq!(upstream.seen(), Vec::<String>::new(), "what is in the tunnel is no request");
}

#[tokio::test]
async fn an_upstream_that_does_not_agree_is_answered_for_as_ever() {
    let mut upstream = Upstream::replying(|_| Reply::Say(ok("no"))).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    for _ in 0..3 {
        caller.send(ASK).await;
        assert_eq!(caller.answer().await.unwrap().body, "no");
        assert_eq!(caller.ask("GET", "/", b"").await.body, "no");
    }
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn a_refused_upgrade_opens_no_tunnel() {
    let mut upstream = Upstream::replying(|_| Reply::Echo(AGREE.to_vec())).await;
    let gate = Gate::open(&TEN.replace("10/h", "1/h"), &upstream).await;
    let mut first = gate.caller().await;
    first.send(ASK).await;
    assert_eq!(first.answer().await.unwrap().status, 101);
    upstream.request().await;
    let mut second = gate.caller().await;
    second.send(ASK).await;
    assert_eq!(second.answer().await.unwrap().status, 429);
    second.send(b"GET /inside HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(second.answer().await.unwrap().status, 429, "it is read as a request");
    assert_eq!(upstream.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn an_upgrade_to_http2_is_not_offered_on() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller
        .send(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
              HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        )
        .await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    let seen = upstream.request().await;
    assert!(!seen.to_lowercase().contains("upgrade") && !seen.contains("http2"), "{seen}");
}
