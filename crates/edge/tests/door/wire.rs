//! Bytes that no well-behaved client sends, and some that only look so: answered or closed, never a
//! crash, and nothing charged that was not asked for.

use std::time::Duration;

use tidegate_edge::{http, listen};
use tokio::io::AsyncWriteExt;

use crate::house::{House, TEN, request};

const ASK: &[u8] = br#"{"facts":{}}"#;

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let house = House::open(TEN).await;
    let mut caller = house.caller().await;
    caller.send(&request("POST", "/v1/check", ASK).repeat(12)).await;
    for n in 0..12 {
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, if n < 10 { 200 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn chunked_bodies_are_read() {
    let house = House::open(TEN).await;
    let mut caller = house.caller().await;
    let head = "POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for _ in 0..2 {
        caller
            .send(format!("{head}5\r\n{{\"fac\r\n7\r\nts\":{{}}}}\r\n0\r\n\r\n").as_bytes())
            .await;
        assert_eq!(caller.answer().await.unwrap().status, 200);
        assert_eq!(caller.ask("POST", "/v1/check", ASK).await.status, 200, "a length in between");
    }
    assert_eq!(house.left().await, 6);
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_is_read() {
    let house = House::open(TEN).await;
    let mut caller = house.caller().await;
    for byte in request("POST", "/v1/check", ASK) {
        caller.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(caller.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn an_oversized_body_is_refused_before_it_is_read() {
    let house = House::open(TEN).await;
    for length in ["65537", "1000000000000", "18446744073709551615"] {
        let mut caller = house.caller().await;
        let head =
            format!("POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        caller.send(head.as_bytes()).await;
        let answer = caller.answer().await.expect(length);
        assert!(matches!(answer.status, 400 | 413 | 431), "{length}: {}", answer.status);
        assert_eq!(answer.header("connection"), Some("close"), "{length}");
    }
    assert_eq!(house.left().await, 10);
}

#[tokio::test]
async fn the_answer_to_an_oversized_body_arrives_though_the_body_is_still_coming() {
    let house = House::open(TEN).await;
    let half = " ".repeat(256 * 1024);
    let chunk = format!("40000\r\n{half}\r\n");
    for (framing, half) in
        [("Content-Length: 524288", &half), ("Transfer-Encoding: chunked", &chunk)]
    {
        let mut caller = house.caller().await;
        let head = format!("POST /v1/check HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
        caller.send(format!("{head}{half}").as_bytes()).await;
        caller.tcp.readable().await.unwrap();
        // Closed with bytes unread, the connection would be reset and this would fail.
        caller.send(half.as_bytes()).await;
        let answer = caller.answer().await.expect("an answer, not a reset");
        assert_eq!(answer.status, 413, "{framing}");
        assert!(answer.body.contains("65536"), "{}", answer.body);
    }
    assert_eq!(house.left().await, 10);
}

#[tokio::test]
async fn a_batch_may_be_longer_than_a_check() {
    let house = House::open(TEN).await;
    let body = format!("{}{}", " ".repeat(100_000), r#"{"checks":[]}"#);
    assert_eq!(house.caller().await.post("/v1/checks", &body).await.status, 200);
    let body = format!("{}{}", " ".repeat(1024 * 1024), r#"{"checks":[]}"#);
    assert_eq!(house.caller().await.post("/v1/checks", &body).await.status, 413);
}

#[tokio::test]
async fn requests_that_could_be_read_in_two_ways_are_not_decided() {
    let both = "5\r\n{\"fac\r\n7\r\nts\":{}}\r\n0\r\n\r\n";
    let plain = r#"{"facts":{}}"#;
    let house = House::open(TEN).await;
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
        let mut caller = house.caller().await;
        let text = format!("POST /v1/check HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}");
        caller.send(text.as_bytes()).await;
        let _ = caller.tcp.shutdown().await;
        while let Some(answer) = caller.answer().await {
            assert_eq!(answer.status, 400, "{headers}{body}");
        }
        assert_eq!(house.left().await, 10, "{headers}{body}");
    }
}

#[tokio::test]
async fn a_request_that_breaks_off_is_not_decided() {
    let house = House::open(TEN).await;
    // Even where what has come is a whole check and only white space is missing.
    let whole = request("POST", "/v1/check", br#"{"facts":{}}    "#);
    for end in 0..whole.len() {
        let mut caller = house.caller().await;
        caller.send(&whole[..end]).await;
        caller.tcp.shutdown().await.unwrap();
        while let Some(answer) = caller.answer().await {
            assert_eq!(answer.status, 400, "at byte {end}");
        }
    }
    assert_eq!(house.left().await, 10);
}

#[tokio::test]
async fn bytes_that_are_no_http_are_answered_or_closed() {
    let house = House::open(TEN).await;
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
        let mut caller = house.caller().await;
        let _ = caller.tcp.write_all(bytes).await;
        let _ = caller.tcp.shutdown().await;
        while let Some(answer) = caller.answer().await {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
            assert!(matches!(answer.status, 400 | 414 | 431), "{shown}: {}", answer.status);
        }
    }
    assert_eq!(house.left().await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_dawdles_is_closed_and_an_idle_connection_is_not() {
    let house = House::open(TEN).await;
    let started = tokio::time::Instant::now();
    let mut silent = house.caller().await;
    assert!(silent.is_closed().await);
    let mut slow = house.caller().await;
    slow.send(b"POST /v1/check HTTP/1.1\r\nHos").await;
    assert!(slow.is_closed().await);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());

    let mut idle = house.caller().await;
    assert_eq!(idle.ask("POST", "/v1/check", ASK).await.status, 200);
    for _ in 0..12 {
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    assert_eq!(idle.ask("POST", "/v1/check", ASK).await.status, 200);
    assert!(idle.is_closed().await, "in the end it is");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_dawdles_is_given_up() {
    let house = House::open(TEN).await;
    let mut slow = house.caller().await;
    slow.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{\"fa").await;
    assert_eq!(slow.answer().await.unwrap().status, 408);
    assert!(slow.is_closed().await);
    assert_eq!(house.left().await, 10);
}

#[tokio::test]
async fn past_the_most_connections_others_wait_their_turn() {
    let listen = listen::Settings { max_connections: 2, ..listen::Settings::default() };
    let house = House::open_at(TEN, http::Settings::default(), listen).await;
    let (mut first, mut second) = (house.caller().await, house.caller().await);
    assert_eq!(first.ask("POST", "/v1/check", ASK).await.status, 200);
    assert_eq!(second.ask("POST", "/v1/check", ASK).await.status, 200);
    let mut third = house.caller().await;
    third.send(&request("POST", "/v1/check", ASK)).await;
    for _ in 0..20 {
        assert_eq!(first.ask("POST", "/v1/check", br#"{"facts":{},"cost":11}"#).await.status, 429);
    }
    let before = first.ask("POST", "/v1/check", ASK).await;
    assert_eq!(before.header("x-ratelimit-remaining"), Some("7"));
    drop(second);
    assert_eq!(third.answer().await.unwrap().header("x-ratelimit-remaining"), Some("6"));
}
