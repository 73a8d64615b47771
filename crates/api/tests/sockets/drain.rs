//! The stop: requests under way are answered, then the door is shut.

use std::time::Duration;

use tidegate_api::http;
use tidegate_net::listen;
use tokio::net::TcpStream;

use tidegate_fixtures::fixture::{TEN_PER_HOUR, TestHttpServer, encode_request};

#[tokio::test(start_paused = true)]
async fn in_flight_request_completes_during_drain() {
    let house = TestHttpServer::start(TEN_PER_HOUR).await;
    let (mut under_way, mut waiting) = (house.connect().await, house.connect().await);
    assert_eq!(waiting.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    let whole = encode_request("POST", "/v1/check", br#"{"facts":{}}"#);
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
    let answer = under_way.read_response().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(under_way.is_closed().await);
    drop((waiting, under_way));

    house.server_task.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_drain_grace() {
    let house = TestHttpServer::start(TEN_PER_HOUR).await;
    let mut idle = house.connect().await;
    assert_eq!(idle.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    house.stop.send(()).unwrap();
    let started = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    house.server_task.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unfinished_request_is_aborted_by_drain_timeout() {
    let patient = Duration::from_secs(3600);
    let settings = http::Settings { body_timeout: patient, ..http::Settings::default() };
    let house = TestHttpServer::start_with(TEN_PER_HOUR, settings).await;
    let mut endless = house.connect().await;
    endless.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{").await;
    // Answered on another connection, so what was sent before has been read.
    assert_eq!(house.remaining().await, 10);
    let started = tokio::time::Instant::now();
    house.stop.send(()).unwrap();
    house.server_task.await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(31), "{:?}", started.elapsed());
    assert!(endless.read_response().await.is_none());
}
