//! What a client may not do to the gateway.

use std::time::Duration;

use tidegate_edge::listen;

use super::upstream::Upstream;
use super::{Gate, MANY, to};

#[tokio::test]
async fn oversized_everything_is_refused_and_it_goes_on() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let long = "a".repeat(9_000);
    let many: String = (0..120).map(|n| format!("x-{n}: 1\r\n")).collect();
    let wide = format!("x: {}\r\n", "a".repeat(40_000));
    for (head, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{wide}\r\n"), 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n".to_owned(), 413),
    ] {
        let mut caller = gate.caller().await;
        caller.send(head.as_bytes()).await;
        assert_eq!(
            caller.answer().await.map(|answer| answer.status),
            Some(expected),
            "{}",
            &head[..40]
        );
    }
    assert_eq!(upstream.seen(), Vec::<String>::new());
    assert_eq!(gate.caller().await.ask("GET", "/", b"").await.status, 200);
}

#[tokio::test]
async fn a_body_that_grows_too_large_on_the_way_is_cut() {
    let upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("ffff\r\n{}\r\n", "a".repeat(0xffff));
    for _ in 0..17 {
        caller.send(chunk.as_bytes()).await;
    }
    assert_eq!(caller.answer().await.map(|answer| answer.status), Some(413));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_dawdles_is_let_go() {
    let upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let started = tokio::time::Instant::now();
    let mut silent = gate.caller().await;
    assert!(silent.is_closed().await);
    let mut slow = gate.caller().await;
    slow.send(b"GET / HTTP/1.1\r\nHos").await;
    assert!(slow.is_closed().await);
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    let mut body = gate.caller().await;
    body.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await;
    assert_eq!(body.answer().await.map(|answer| answer.status), Some(408));
    assert!(body.is_closed().await);
}

#[tokio::test]
async fn one_address_does_not_take_all_places() {
    let upstream = Upstream::start().await;
    let listen = listen::Settings { max_connections_per_ip: 2, ..listen::Settings::default() };
    let gate = Gate::open_with(MANY, to(&[upstream.address]), listen).await;
    let (mut first, mut second) = (gate.caller().await, gate.caller().await);
    assert_eq!(first.ask("GET", "/", b"").await.status, 200);
    assert_eq!(second.ask("GET", "/", b"").await.status, 200);
    assert!(gate.caller().await.is_closed().await);
    assert_eq!(first.ask("GET", "/", b"").await.status, 200);
}

#[tokio::test]
async fn who_says_nothing_takes_a_place_too() {
    let upstream = Upstream::start().await;
    let listen = listen::Settings { max_connections_per_ip: 2, ..listen::Settings::default() };
    let gate = Gate::open_with(MANY, to(&[upstream.address]), listen).await;
    let _silent = (gate.caller().await, gate.caller().await);
    let mut third = gate.caller().await;
    let closed = tokio::time::timeout(Duration::from_secs(5), third.is_closed()).await;
    assert_eq!(closed, Ok(true), "at once, not when its time is over");
}
