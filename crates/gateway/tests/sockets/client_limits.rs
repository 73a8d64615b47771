//! Limits that protect the gateway from clients.

use std::time::Duration;

use tidegate_net::listen;

use super::UNREACHED_LIMIT;
use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::{TestGateway, settings_for};

#[tokio::test]
async fn oversized_request_parts_are_rejected() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let long = "a".repeat(9_000);
    let many: String = (0..120).map(|n| format!("x-{n}: 1\r\n")).collect();
    let wide = format!("x: {}\r\n", "a".repeat(40_000));
    for (head, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{wide}\r\n"), 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n".to_owned(), 413),
    ] {
        let mut caller = gate.connect().await;
        caller.send(head.as_bytes()).await;
        assert_eq!(
            caller.read_response().await.map(|response| response.status),
            Some(expected),
            "{}",
            &head[..40]
        );
    }
    assert_eq!(upstream.received_requests(), Vec::<String>::new());
    assert_eq!(gate.connect().await.request("GET", "/", b"").await.status, 200);
}

#[tokio::test]
async fn growing_chunked_body_is_cut_with_413() {
    let upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("ffff\r\n{}\r\n", "a".repeat(0xffff));
    for _ in 0..17 {
        caller.send(chunk.as_bytes()).await;
    }
    assert_eq!(caller.read_response().await.map(|response| response.status), Some(413));
}

#[tokio::test(start_paused = true)]
async fn slow_client_times_out() {
    let upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let started = tokio::time::Instant::now();
    let mut silent = gate.connect().await;
    assert!(silent.is_closed().await);
    let mut slow = gate.connect().await;
    slow.send(b"GET / HTTP/1.1\r\nHos").await;
    assert!(slow.is_closed().await);
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    let mut body = gate.connect().await;
    body.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await;
    assert_eq!(body.read_response().await.map(|response| response.status), Some(408));
    assert!(body.is_closed().await);
}

#[tokio::test]
async fn connections_per_ip_are_limited() {
    let upstream = ScriptedUpstream::start().await;
    let listen = listen::Settings { max_connections_per_ip: 2, ..listen::Settings::default() };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings_for(&[upstream.address]), listen).await;
    let (mut first, mut second) = (gate.connect().await, gate.connect().await);
    assert_eq!(first.request("GET", "/", b"").await.status, 200);
    assert_eq!(second.request("GET", "/", b"").await.status, 200);
    assert!(gate.connect().await.is_closed().await);
    assert_eq!(first.request("GET", "/", b"").await.status, 200);
}

#[tokio::test]
async fn silent_connections_count_toward_ip_limit() {
    let upstream = ScriptedUpstream::start().await;
    let listen = listen::Settings { max_connections_per_ip: 2, ..listen::Settings::default() };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings_for(&[upstream.address]), listen).await;
    let _silent = (gate.connect().await, gate.connect().await);
    let mut third = gate.connect().await;
    let closed = tokio::time::timeout(Duration::from_secs(5), third.is_closed()).await;
    assert_eq!(closed, Ok(true), "closed at once, not after a timeout");
}
