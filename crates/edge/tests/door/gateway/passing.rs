//! What goes through, and how it looks on the other side.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_edge::gateway::{Route, Settings, UpstreamSettings};
use tidegate_edge::listen;

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, MANY, to};
use crate::house::{TEN, request};

#[tokio::test]
async fn a_request_arrives_canonical_and_with_its_way_told() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller
        .send(
            b"POST /a/./b/../%63//d?q=%2F..&r HTTP/1.1\r\nHost: api.example.com\r\nX-Mine: 1\r\n\
              X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
              X-Request-Id: mine\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
              Content-Length: 5\r\n\r\nhello",
        )
        .await;
    let answer = caller.answer().await.unwrap();
    let seen = upstream.request().await;
    let id = answer.header("x-request-id").unwrap().to_owned();
    let mut lines: Vec<&str> = seen.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /a/c/d?q=%2F..&r HTTP/1.1");
    lines.sort_unstable();
    let named = format!("x-request-id: {id}");
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
        &named,
    ];
    assert_eq!(lines, expected, "{seen}");
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("999999"));
}

#[tokio::test]
async fn connections_are_used_again_on_both_sides() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    for _ in 0..20 {
        assert_eq!(caller.ask("POST", "/x", b"body").await.body, "hello");
        assert_eq!(caller.ask("HEAD", "/x", b"").await.status, 200);
    }
    caller.send(&request("GET", "/x", b"").repeat(10)).await;
    for _ in 0..10 {
        assert_eq!(caller.answer().await.unwrap().body, "hello");
    }
    assert_eq!(upstream.seen().len(), 50);
    // A HEAD is answered with a length and without a body, which the upstream here does not know.
    assert!(upstream.connections.load(Relaxed) <= 21, "{}", upstream.connections.load(Relaxed));
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
                   3\r\nabc\r\n4\r\ndefg\r\n0\r\nx-sum: 7\r\n\r\n";
    let mut upstream = Upstream::replying(|_| Reply::Say(answer.to_vec())).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    for _ in 0..3 {
        caller
            .send(
                b"POST /up HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nfirst\r\n",
            )
            .await;
        caller.send(b"6\r\nsecond\r\n0\r\n\r\n").await;
        let seen = upstream.request().await;
        assert!(seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
        assert!(seen.contains("te: trailers\r\n"), "{seen}");
        assert!(seen.contains("first") && seen.contains("second"), "{seen}");
        let told = caller.raw_until(b"\r\n0\r\nx-sum: 7\r\n\r\n").await;
        assert!(told.contains("3\r\nabc\r\n4\r\ndefg\r\n"), "{told}");
    }
    assert_eq!(upstream.connections.load(Relaxed), 1);
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_passed_on() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let upstream = Upstream::replying(|_| Reply::SayAndClose(answer.to_vec())).await;
    let gate = Gate::open(MANY, &upstream).await;
    for _ in 0..3 {
        let mut caller = gate.caller().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let told = caller.raw_until(b"0\r\n\r\n").await;
        assert!(told.contains("until the end"), "{told}");
    }
}

#[tokio::test]
async fn exactly_the_limit_reaches_the_upstream() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open("rules: [{ id: l, key_by: global, limit: 500/h }]", &upstream).await;
    let mut callers = Vec::new();
    for _ in 0..200 {
        let mut caller = gate.caller().await;
        callers.push(tokio::spawn(async move {
            let mut passed = 0;
            for _ in 0..5 {
                let answer = caller.ask("GET", "/", b"").await;
                assert!(matches!(answer.status, 200 | 429), "{answer:?}");
                passed += usize::from(answer.status == 200);
            }
            passed
        }));
    }
    let mut passed = 0;
    for caller in callers {
        passed += caller.await.unwrap();
    }
    assert_eq!((passed, upstream.seen().len()), (500, 500));
}

#[tokio::test]
async fn a_refused_request_does_not_reach_the_upstream() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(TEN, &upstream).await;
    let mut caller = gate.caller().await;
    for n in 0..12 {
        let answer = caller.ask("POST", "/", b"some body").await;
        assert_eq!(answer.status, if n < 10 { 200 } else { 429 }, "{n}");
        if n >= 10 {
            assert_eq!(answer.header("retry-after"), Some("360"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
        }
    }
    assert_eq!(upstream.seen().len(), 10);
}

#[tokio::test]
async fn routes_lead_to_their_upstreams() {
    let (first, second) =
        (Upstream::start().await, Upstream::replying(|_| Reply::Say(ok("two"))).await);
    let mut settings = to(&[first.address]);
    let other = to(&[second.address]).upstreams.remove(0);
    settings.upstreams.push(UpstreamSettings { ..other });
    settings.routes = vec![
        Route { host: None, prefix: "/api".to_owned(), upstream: 0 },
        Route { host: Some("b.example.com".to_owned()), prefix: "/".to_owned(), upstream: 1 },
    ];
    let settings = Settings { ..settings };
    let gate = Gate::open_with(MANY, settings, listen::Settings::default()).await;
    for (host, path, expected) in [
        ("a", "/api/x", (200, "hello")),
        ("B.example.com:80", "/api/x", (200, "two")),
        ("a", "/apix", (404, "")),
        ("a", "/api/../x", (404, "")),
    ] {
        let mut caller = gate.caller().await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        caller.send(head.as_bytes()).await;
        let answer = caller.answer().await.unwrap();
        let body = if answer.status == 200 { answer.body.as_str() } else { "" };
        assert_eq!((answer.status, body), expected, "{host} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_is_finished_after_the_stop() {
    let slow = std::time::Duration::from_secs(5);
    let mut upstream = Upstream::replying(move |_| Reply::SayLater(slow, ok("late"))).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(&request("GET", "/", b"")).await;
    upstream.request().await;
    gate.stop.send(()).unwrap();
    let answer = caller.answer().await.unwrap();
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("late", Some("close")));
    assert!(caller.is_closed().await);
    drop(caller);
    gate.served.await.unwrap();
}
