//! Tests unusual and malformed HTTP input: the server answers or closes the connection, never
//! crashes, and charges only complete valid requests.

use std::time::Duration;

use tidegate_api::http;
use tidegate_net::listen;
use tokio::io::AsyncWriteExt;

use tidegate_fixtures::raw_client::encode_request;
use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};

const EMPTY_CHECK: &[u8] = br#"{"facts":{}}"#;

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    caller.send(&encode_request("POST", "/v1/check", EMPTY_CHECK).repeat(12)).await;
    for n in 0..12 {
        let answer = caller.read_response().await.unwrap();
        assert_eq!(answer.status, if n < 10 { 200 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn chunked_bodies_are_read() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    let head = "POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for _ in 0..2 {
        caller
            .send(format!("{head}5\r\n{{\"fac\r\n7\r\nts\":{{}}}}\r\n0\r\n\r\n").as_bytes())
            .await;
        assert_eq!(caller.read_response().await.unwrap().status, 200);
        assert_eq!(
            caller.request("POST", "/v1/check", EMPTY_CHECK).await.status,
            200,
            "a body with Content-Length in between"
        );
    }
    assert_eq!(server.remaining().await, 6);
}

#[tokio::test]
async fn body_sent_byte_by_byte_is_read() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    for byte in encode_request("POST", "/v1/check", EMPTY_CHECK) {
        caller.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(caller.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn oversized_content_length_is_rejected_early() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    for length in ["65537", "1000000000000", "18446744073709551615"] {
        let mut caller = server.connect().await;
        let head =
            format!("POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        caller.send(head.as_bytes()).await;
        let answer = caller.read_response().await.expect(length);
        assert!(matches!(answer.status, 400 | 413 | 431), "{length}: {}", answer.status);
        assert_eq!(answer.header("connection"), Some("close"), "{length}");
    }
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test]
async fn oversized_body_gets_response_without_reset() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let half = " ".repeat(256 * 1024);
    let chunk = format!("40000\r\n{half}\r\n");
    for (framing, half) in
        [("Content-Length: 524288", &half), ("Transfer-Encoding: chunked", &chunk)]
    {
        let mut caller = server.connect().await;
        let head = format!("POST /v1/check HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
        caller.send(format!("{head}{half}").as_bytes()).await;
        caller.tcp.readable().await.unwrap();
        // If the server closed the socket with unread bytes, a reset would make this fail.
        caller.send(half.as_bytes()).await;
        let answer = caller.read_response().await.expect("a response, not a reset");
        assert_eq!(answer.status, 413, "{framing}");
        assert!(answer.body.contains("65536"), "{}", answer.body);
    }
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test]
async fn batch_body_limit_exceeds_check_limit() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let body = format!("{}{}", " ".repeat(100_000), r#"{"checks":[]}"#);
    assert_eq!(server.connect().await.post("/v1/checks", &body).await.status, 200);
    let body = format!("{}{}", " ".repeat(1024 * 1024), r#"{"checks":[]}"#);
    assert_eq!(server.connect().await.post("/v1/checks", &body).await.status, 413);
}

#[tokio::test]
async fn ambiguous_framing_is_rejected_and_uncharged() {
    let both = "5\r\n{\"fac\r\n7\r\nts\":{}}\r\n0\r\n\r\n";
    let plain = r#"{"facts":{}}"#;
    let server = TestServer::start(TEN_PER_HOUR).await;
    for (headers, body) in [
        ("Content-Length: 12\r\nTransfer-Encoding: chunked\r\n", both),
        ("Transfer-Encoding: chunked\r\nContent-Length: 12\r\n", both),
        ("Transfer-Encoding: chunked\r\nCONTENT-LENGTH: 0\r\n", both),
        ("Content-Length: 12\r\nContent-Length: 13\r\n", plain),
        ("Content-Length: 12, 13\r\n", plain),
        ("Content-Length: +12\r\n", plain),
        ("Content-Length: 0x0c\r\n", plain),
        ("Content-Length : 12\r\n", plain),
        ("Transfer-Encoding: gzip\r\n", plain),
        ("Transfer-Encoding: chunked, identity\r\n", both),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n{\"facts\":{}}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{\"facts\":{}}\r\n0\r\n\r\n"),
    ] {
        let mut caller = server.connect().await;
        let text = format!("POST /v1/check HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}");
        caller.send(text.as_bytes()).await;
        let _ = caller.tcp.shutdown().await;
        while let Some(answer) = caller.read_response().await {
            assert_eq!(answer.status, 400, "{headers}{body}");
        }
        assert_eq!(server.remaining().await, 10, "{headers}{body}");
    }
}

#[tokio::test]
async fn truncated_request_is_not_decided() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    // Even if the received part is a complete check and only white space is missing.
    let whole = encode_request("POST", "/v1/check", br#"{"facts":{}}    "#);
    for end in 0..whole.len() {
        let mut caller = server.connect().await;
        caller.send(&whole[..end]).await;
        caller.tcp.shutdown().await.unwrap();
        while let Some(answer) = caller.read_response().await {
            assert_eq!(answer.status, 400, "at byte {end}");
        }
    }
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test]
async fn non_http_bytes_are_rejected_or_closed() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(64 * 1024));
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"G\xffT / HTTP/1.1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nX\0: y\r\n\r\n",
        b"*3\r\n$3\r\nSET\r\n",
        long.as_bytes(),
        many.as_bytes(),
        target.as_bytes(),
    ] {
        let mut caller = server.connect().await;
        let _ = caller.tcp.write_all(bytes).await;
        let _ = caller.tcp.shutdown().await;
        while let Some(answer) = caller.read_response().await {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
            assert!(matches!(answer.status, 400 | 414 | 431), "{shown}: {}", answer.status);
        }
    }
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test(start_paused = true)]
async fn header_timeout_is_shorter_than_idle_timeout() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let started = tokio::time::Instant::now();
    let mut silent = server.connect().await;
    assert!(silent.is_closed().await);
    let mut slow = server.connect().await;
    slow.send(b"POST /v1/check HTTP/1.1\r\nHos").await;
    assert!(slow.is_closed().await);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());

    let mut idle = server.connect().await;
    assert_eq!(idle.request("POST", "/v1/check", EMPTY_CHECK).await.status, 200);
    for _ in 0..12 {
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    assert_eq!(idle.request("POST", "/v1/check", EMPTY_CHECK).await.status, 200);
    assert!(idle.is_closed().await, "closed after the idle timeout");
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out_with_408() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut slow = server.connect().await;
    slow.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{\"fa").await;
    assert_eq!(slow.read_response().await.unwrap().status, 408);
    assert!(slow.is_closed().await);
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test]
async fn connections_over_the_maximum_wait() {
    let listen = listen::Settings { max_connections: 2, ..listen::Settings::default() };
    let server =
        TestServer::start_with_listen(TEN_PER_HOUR, http::Settings::default(), listen).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!(first.request("POST", "/v1/check", EMPTY_CHECK).await.status, 200);
    assert_eq!(second.request("POST", "/v1/check", EMPTY_CHECK).await.status, 200);
    let mut third = server.connect().await;
    third.send(&encode_request("POST", "/v1/check", EMPTY_CHECK)).await;
    for _ in 0..20 {
        assert_eq!(
            first.request("POST", "/v1/check", br#"{"facts":{},"cost":11}"#).await.status,
            429
        );
    }
    let before = first.request("POST", "/v1/check", EMPTY_CHECK).await;
    assert_eq!(before.header("x-ratelimit-remaining"), Some("7"));
    drop(second);
    assert_eq!(third.read_response().await.unwrap().header("x-ratelimit-remaining"), Some("6"));
}
