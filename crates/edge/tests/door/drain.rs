//! The stop: requests under way are answered, then the door is shut.

use std::time::Duration;

use tidegate_edge::{http, listen};
use tokio::net::TcpStream;

use crate::house::{House, TEN, request};

#[tokio::test(start_paused = true)]
async fn a_request_under_way_is_answered_after_the_stop() {
    let house = House::open(TEN).await;
    let (mut under_way, mut waiting) = (house.caller().await, house.caller().await);
    assert_eq!(waiting.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    let whole = request("POST", "/v1/check", br#"{"facts":{}}"#);
    let (begun, rest) = whole.split_at(whole.len() - 5);
    under_way.send(begun).await;
    let (address, status) = (house.address, house.status);

    house.stop.send(()).unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(status.is_draining());
    tokio::time::advance(listen::Settings::default().drain_grace / 2).await;
    // A connection that was idle may still ask within the grace, and is told to go.
    let last = waiting.post("/v1/check", r#"{"facts":{}}"#).await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(waiting.is_closed().await);
    under_way.send(rest).await;
    let answer = under_way.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(under_way.is_closed().await);
    drop((waiting, under_way));

    house.served.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_when_the_grace_ends() {
    let house = House::open(TEN).await;
    let mut idle = house.caller().await;
    assert_eq!(idle.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    house.stop.send(()).unwrap();
    let started = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    house.served.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_cut_off() {
    let patient = Duration::from_secs(3600);
    let settings = http::Settings { body_timeout: patient, ..http::Settings::default() };
    let house = House::open_with(TEN, settings).await;
    let mut endless = house.caller().await;
    endless.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{").await;
    // Answered on another connection, so what was sent before has been read.
    assert_eq!(house.left().await, 10);
    let started = tokio::time::Instant::now();
    house.stop.send(()).unwrap();
    house.served.await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(31), "{:?}", started.elapsed());
    assert!(endless.answer().await.is_none());
}
