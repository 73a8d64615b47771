//! Forwarding: what the upstream and the client receive.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_gateway::{Settings, UpstreamRoute, UpstreamSettings};
use tidegate_net::listen;

use super::UNREACHED_LIMIT;
use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::raw_client::encode_request;
use tidegate_fixtures::server::TEN_PER_HOUR;

#[tokio::test]
async fn request_is_canonical_with_forwarding_headers() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller
        .send(
            b"POST /a/./b/../%63//d?q=%2F..&r HTTP/1.1\r\nHost: api.example.com\r\nX-Mine: 1\r\n\
              X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
              X-Request-Id: mine\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
              Content-Length: 5\r\n\r\nhello",
        )
        .await;
    let response = caller.read_response().await.unwrap();
    let seen = upstream.next_request().await;
    let id = response.header("x-request-id").unwrap().to_owned();
    let mut lines: Vec<&str> = seen.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /a/c/d?q=%2F..&r HTTP/1.1");
    lines.sort_unstable();
    let request_id = format!("x-request-id: {id}");
    let expected = [
        "",
        "content-length: 5",
        "hello",
        "host: api.example.com",
        "via: 1.1 tidegate",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: api.example.com",
        "x-forwarded-proto: http",
        "x-mine: 1",
        "x-real-ip: 127.0.0.1",
        &request_id,
    ];
    assert_eq!(lines, expected, "{seen}");
    assert_eq!((response.status, response.body.as_str()), (200, "hello"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("999999"));
}

#[tokio::test]
async fn connections_are_reused_on_both_sides() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    for _ in 0..20 {
        assert_eq!(caller.request("POST", "/x", b"body").await.body, "hello");
        assert_eq!(caller.request("HEAD", "/x", b"").await.status, 200);
    }
    caller.send(&encode_request("GET", "/x", b"").repeat(10)).await;
    for _ in 0..10 {
        assert_eq!(caller.read_response().await.unwrap().body, "hello");
    }
    assert_eq!(upstream.received_requests().len(), 50);
    // The upstream here answers HEAD with a body, so the gateway does not reuse that connection.
    assert!(upstream.connections.load(Relaxed) <= 21, "{}", upstream.connections.load(Relaxed));
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
                   3\r\nabc\r\n4\r\ndefg\r\n0\r\nx-sum: 7\r\n\r\n";
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::Send(response.to_vec())).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    for _ in 0..3 {
        caller
            .send(
                b"POST /up HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nfirst\r\n",
            )
            .await;
        caller.send(b"6\r\nsecond\r\n0\r\n\r\n").await;
        let seen = upstream.next_request().await;
        assert!(seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
        assert!(seen.contains("te: trailers\r\n"), "{seen}");
        assert!(seen.contains("first") && seen.contains("second"), "{seen}");
        let received = caller.read_until(b"\r\n0\r\nx-sum: 7\r\n\r\n").await;
        assert!(received.contains("3\r\nabc\r\n4\r\ndefg\r\n"), "{received}");
    }
    assert_eq!(upstream.connections.load(Relaxed), 1);
}

#[tokio::test]
async fn close_delimited_response_is_forwarded() {
    let response = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(response.to_vec())).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    for _ in 0..3 {
        let mut caller = gate.connect().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let received = caller.read_until(b"0\r\n\r\n").await;
        assert!(received.contains("until the end"), "{received}");
    }
}

#[tokio::test]
async fn exactly_the_limit_reaches_the_upstream() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate =
        TestGateway::start("rules: [{ id: l, key_by: global, limit: 500/h }]", upstream.address)
            .await;
    let mut callers = Vec::new();
    for _ in 0..200 {
        let mut caller = gate.connect().await;
        callers.push(tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..5 {
                let response = caller.request("GET", "/", b"").await;
                assert!(matches!(response.status, 200 | 429), "{response:?}");
                allowed += usize::from(response.status == 200);
            }
            allowed
        }));
    }
    let mut allowed = 0;
    for caller in callers {
        allowed += caller.await.unwrap();
    }
    assert_eq!((allowed, upstream.received_requests().len()), (500, 500));
}

#[tokio::test]
async fn denied_request_never_reaches_upstream() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(TEN_PER_HOUR, upstream.address).await;
    let mut caller = gate.connect().await;
    for n in 0..12 {
        let response = caller.request("POST", "/", b"some body").await;
        assert_eq!(response.status, if n < 10 { 200 } else { 429 }, "{n}");
        if n >= 10 {
            assert_eq!(response.header("retry-after"), Some("360"));
            assert_eq!(response.header("cache-control"), Some("no-store"));
        }
    }
    assert_eq!(upstream.received_requests().len(), 10);
}

#[tokio::test]
async fn routes_select_their_upstreams() {
    let (first, second) = (
        ScriptedUpstream::start().await,
        ScriptedUpstream::start_replying(|_| UpstreamReply::Send(ok_response("two"))).await,
    );
    let mut settings = settings_for(&[first.address]);
    let other = settings_for(&[second.address]).upstreams.remove(0);
    settings.upstreams.push(UpstreamSettings { ..other });
    settings.routes = vec![
        UpstreamRoute { host: None, prefix: "/api".to_owned(), upstream: 0 },
        UpstreamRoute {
            host: Some("b.example.com".to_owned()),
            prefix: "/".to_owned(),
            upstream: 1,
        },
    ];
    let settings = Settings { ..settings };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await;
    for (host, path, expected) in [
        ("a", "/api/x", (200, "hello")),
        ("B.example.com:80", "/api/x", (200, "two")),
        ("a", "/apix", (404, "")),
        ("a", "/api/../x", (404, "")),
    ] {
        let mut caller = gate.connect().await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        caller.send(head.as_bytes()).await;
        let response = caller.read_response().await.unwrap();
        let body = if response.status == 200 { response.body.as_str() } else { "" };
        assert_eq!((response.status, body), expected, "{host} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_flight_request_completes_after_shutdown() {
    let slow = std::time::Duration::from_secs(5);
    let mut upstream = ScriptedUpstream::start_replying(move |_| {
        UpstreamReply::SendAfter(slow, ok_response("late"))
    })
    .await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(&encode_request("GET", "/", b"")).await;
    upstream.next_request().await;
    gate.stop.send(()).unwrap();
    let response = caller.read_response().await.unwrap();
    assert_eq!((response.body.as_str(), response.header("connection")), ("late", Some("close")));
    assert!(caller.is_closed().await);
    drop(caller);
    gate.server_task.await.unwrap();
}
