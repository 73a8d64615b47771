//! The life of a connection: it is told to go when it is old, and costs no call.

use std::time::Duration;

use tidegate_edge::{grpc, listen};

use super::{ASK, CALL, Desk, framed, memory};

const RULES: &str = "rules: [{ id: r, key_by: ip, limit: 10/h }]";

#[tokio::test(start_paused = true)]
async fn a_connection_goes_when_it_is_old_and_its_calls_are_answered() {
    let age = Duration::from_secs(600);
    let listen = listen::Settings { max_age: Some(age), ..listen::Settings::default() };
    let desk = Desk::open_with(RULES, memory(), grpc::Settings::default(), listen).await;
    let begun = tokio::time::Instant::now();
    let mut client = desk.client().await;
    assert_eq!(client.call(ASK, framed(CALL), &[]).await.code, Some(0));
    // It asks now and then, as Envoy does, until it is told to go (GOAWAY).
    let mut calls = 0;
    while client.sender.ready().await.is_ok() && !client.sender.is_closed() {
        assert!(calls < 100, "it is never told to go");
        assert_eq!(client.call(ASK, framed(CALL), &[]).await.code, Some(0), "none is lost");
        calls += 1;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let lived = begun.elapsed();
    assert!((age * 9 / 10..=age * 11 / 10 + Duration::from_secs(11)).contains(&lived), "{lived:?}");
    assert!(calls > 50, "{calls}");
    client.connection.await.unwrap().unwrap();
    assert_eq!(desk.ask(CALL).await.code, Some(0), "another connection is welcome");
}

#[tokio::test(start_paused = true)]
async fn a_watch_does_not_keep_a_connection_for_ever() {
    let age = Duration::from_secs(600);
    let listen = listen::Settings { max_age: Some(age), ..listen::Settings::default() };
    let patience = listen.drain_timeout;
    let desk = Desk::open_with(RULES, memory(), grpc::Settings::default(), listen).await;
    let begun = tokio::time::Instant::now();
    let mut client = desk.client().await;
    let watch = client.send("/grpc.health.v1.Health/Watch", framed(b""), &[]).await;
    let most = age * 11 / 10 + patience + Duration::from_secs(1);
    let ended = tokio::time::timeout(most, client.connection).await;
    assert!(ended.is_ok(), "it is kept for {:?}", begun.elapsed());
    drop(watch);
}
