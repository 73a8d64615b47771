//! Tests the maximum connection age: the server sends GOAWAY, and no call is lost.

use std::time::Duration;

use tidegate_api::grpc;
use tidegate_net::listen;

use super::{ENVOY_CALL, SHOULD_RATE_LIMIT, TestGrpcServer, encode_frame, new_store};

const RULES: &str = "rules: [{ id: r, key_by: ip, limit: 10/h }]";

#[tokio::test(start_paused = true)]
async fn max_age_closes_connection_without_lost_calls() {
    let age = Duration::from_secs(600);
    let listen = listen::Settings { max_age: Some(age), ..listen::Settings::default() };
    let server =
        TestGrpcServer::start_with(RULES, new_store(), grpc::Settings::default(), listen).await;
    let begun = tokio::time::Instant::now();
    let mut client = server.connect().await;
    assert_eq!(client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[]).await.code, Some(0));
    // The client makes a call from time to time, as Envoy does, until the server sends GOAWAY.
    let mut calls = 0;
    while client.sender.ready().await.is_ok() && !client.sender.is_closed() {
        assert!(calls < 100, "the server never sends GOAWAY");
        assert_eq!(
            client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[]).await.code,
            Some(0),
            "no call is lost"
        );
        calls += 1;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let lived = begun.elapsed();
    assert!((age * 9 / 10..=age * 11 / 10 + Duration::from_secs(11)).contains(&lived), "{lived:?}");
    assert!(calls > 50, "{calls}");
    client.connection.await.unwrap().unwrap();
    assert_eq!(server.call_once(ENVOY_CALL).await.code, Some(0), "a new connection is accepted");
}

#[tokio::test(start_paused = true)]
async fn watch_does_not_outlive_max_age() {
    let age = Duration::from_secs(600);
    let listen = listen::Settings { max_age: Some(age), ..listen::Settings::default() };
    let drain_timeout = listen.drain_timeout;
    let server =
        TestGrpcServer::start_with(RULES, new_store(), grpc::Settings::default(), listen).await;
    let begun = tokio::time::Instant::now();
    let mut client = server.connect().await;
    let watch = client.send("/grpc.health.v1.Health/Watch", encode_frame(b""), &[]).await;
    let max = age * 11 / 10 + drain_timeout + Duration::from_secs(1);
    let ended = tokio::time::timeout(max, client.connection).await;
    assert!(ended.is_ok(), "still open after {:?}", begun.elapsed());
    drop(watch);
}
