//! Tests shutdown: the server answers requests in flight, then closes the listener.

use std::time::Duration;

use tidegate_api::http;
use tidegate_net::listen;
use tokio::net::TcpStream;

use tidegate_fixtures::raw_client::encode_request;
use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};

#[tokio::test(start_paused = true)]
async fn in_flight_request_completes_during_drain() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let (mut in_flight, mut idle) = (server.connect().await, server.connect().await);
    assert_eq!(idle.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    let whole = encode_request("POST", "/v1/check", br#"{"facts":{}}"#);
    let (begun, rest) = whole.split_at(whole.len() - 5);
    in_flight.send(begun).await;
    let (address, status) = (server.address, server.status);

    server.stop.send(()).unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(status.is_draining());
    tokio::time::advance(listen::Settings::default().drain_grace / 2).await;
    // During the grace period an idle connection may send one more request; the response closes it.
    let last = idle.post("/v1/check", r#"{"facts":{}}"#).await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(idle.is_closed().await);
    in_flight.send(rest).await;
    let answer = in_flight.read_response().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(in_flight.is_closed().await);
    drop((idle, in_flight));

    server.server_task.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_drain_grace() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    server.stop.send(()).unwrap();
    let started = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    server.server_task.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unfinished_request_is_aborted_by_drain_timeout() {
    let body_timeout = Duration::from_secs(3600);
    let settings = http::Settings { body_timeout, ..http::Settings::default() };
    let server = TestServer::start_with(TEN_PER_HOUR, settings).await;
    let mut endless = server.connect().await;
    endless.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{").await;
    // A response on another connection shows that the server has read the unfinished request.
    assert_eq!(server.remaining().await, 10);
    let started = tokio::time::Instant::now();
    server.stop.send(()).unwrap();
    server.server_task.await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(31), "{:?}", started.elapsed());
    assert!(endless.read_response().await.is_none());
}
