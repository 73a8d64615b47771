//! Dawdlers and crowds. Time is paused: it moves when all wait.

use std::time::Duration;

use tidegate_edge::listen::Settings;

use super::{House, command};

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings {
        header_timeout: 10 * SECOND,
        idle_timeout: 100 * SECOND,
        send_timeout: 60 * SECOND,
        ..Settings::default()
    }
}

/// How long it took until the connection was closed.
async fn closed_after(caller: &mut crate::house::Caller) -> Duration {
    let begun = tokio::time::Instant::now();
    assert!(caller.is_closed().await);
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_command_that_has_begun_must_end_soon() {
    let house = House::open(settings()).await;
    let mut caller = house.caller().await;
    caller.send(&command("PING")).await;
    assert_eq!(caller.raw_until(b"\r\n").await, "+PONG\r\n");
    caller.send(b"*2\r\n$4\r\nECHO\r\n$10\r\nab").await;
    let after = closed_after(&mut caller).await;
    assert!(after >= 10 * SECOND && after <= 20 * SECOND, "{after:?}");
}

/// One byte every few seconds is no progress: the command is still the same.
#[tokio::test(start_paused = true)]
async fn bytes_that_trickle_in_do_not_help() {
    let house = House::open(settings()).await;
    let mut caller = house.caller().await;
    let begun = tokio::time::Instant::now();
    caller.send(b"*1\r\n$60000\r\n").await;
    while begun.elapsed() < 60 * SECOND {
        tokio::time::sleep(4 * SECOND).await;
        if tokio::io::AsyncWriteExt::write_all(&mut caller.tcp, b"x").await.is_err() {
            break;
        }
    }
    assert!(begun.elapsed() < 40 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_long_but_not_for_ever() {
    let house = House::open(settings()).await;
    let mut caller = house.caller().await;
    caller.send(&command("PING")).await;
    caller.raw_until(b"\r\n").await;
    tokio::time::sleep(90 * SECOND).await;
    caller.send(&command("PING")).await;
    assert_eq!(caller.raw_until(b"\r\n").await, "+PONG\r\n");
    let after = closed_after(&mut caller).await;
    assert!(after >= 100 * SECOND && after <= 110 * SECOND, "{after:?}");
}

#[tokio::test]
async fn one_address_has_no_more_connections_than_it_may_have() {
    let house = House::open(Settings { max_connections_per_ip: 2, ..Settings::default() }).await;
    let (mut first, mut second) = (house.caller().await, house.caller().await);
    for caller in [&mut first, &mut second] {
        caller.send(&command("PING")).await;
        assert_eq!(caller.raw_until(b"\r\n").await, "+PONG\r\n");
    }
    assert!(house.caller().await.is_closed().await, "the third");
    first.send(&command("QUIT")).await;
    assert_eq!(first.raw_to_end().await, "+OK\r\n");
    drop(first);
    // A place is free as soon as the other side knows.
    for _ in 0..1_000 {
        let mut again = house.caller().await;
        again.send(&command("PING")).await;
        if again.raw_to_mark_or_end(b"\r\n").await == "+PONG\r\n" {
            return;
        }
    }
    panic!("the place stays taken");
}

#[tokio::test]
async fn more_connections_than_there_are_places_wait() {
    let house = House::open(Settings { max_connections: 1, ..Settings::default() }).await;
    let mut first = house.caller().await;
    first.send(&command("PING")).await;
    assert_eq!(first.raw_until(b"\r\n").await, "+PONG\r\n");
    let mut second = house.caller().await;
    second.send(&command("PING")).await;
    first.send(&command("QUIT")).await;
    assert_eq!(first.raw_to_end().await, "+OK\r\n");
    drop(first);
    assert_eq!(second.raw_until(b"\r\n").await, "+PONG\r\n");
}
