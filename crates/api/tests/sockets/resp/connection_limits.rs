//! Dawdlers and crowds. Time is paused: it moves when all wait.

use std::time::Duration;

use tidegate_net::listen::Settings;

use super::{TestRespServer, encode_command};

const SECOND: Duration = Duration::from_secs(1);

fn short_timeouts() -> Settings {
    Settings {
        header_timeout: 10 * SECOND,
        idle_timeout: 100 * SECOND,
        send_timeout: 60 * SECOND,
        ..Settings::default()
    }
}

/// How long it took until the connection was closed.
async fn time_until_closed(caller: &mut tidegate_fixtures::fixture::RawClient) -> Duration {
    let begun = tokio::time::Instant::now();
    assert!(caller.is_closed().await);
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn unfinished_command_times_out() {
    let house = TestRespServer::start(short_timeouts()).await;
    let mut caller = house.connect().await;
    caller.send(&encode_command("PING")).await;
    assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    caller.send(b"*2\r\n$4\r\nECHO\r\n$10\r\nab").await;
    let after = time_until_closed(&mut caller).await;
    assert!(after >= 10 * SECOND && after <= 20 * SECOND, "{after:?}");
}

/// One byte every few seconds is no progress: the command is still the same.
#[tokio::test(start_paused = true)]
async fn trickled_bytes_do_not_extend_timeout() {
    let house = TestRespServer::start(short_timeouts()).await;
    let mut caller = house.connect().await;
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
async fn idle_connection_closes_after_idle_timeout() {
    let house = TestRespServer::start(short_timeouts()).await;
    let mut caller = house.connect().await;
    caller.send(&encode_command("PING")).await;
    caller.read_until(b"\r\n").await;
    tokio::time::sleep(90 * SECOND).await;
    caller.send(&encode_command("PING")).await;
    assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    let after = time_until_closed(&mut caller).await;
    assert!(after >= 100 * SECOND && after <= 110 * SECOND, "{after:?}");
}

#[tokio::test]
async fn connections_per_ip_are_limited() {
    let house =
        TestRespServer::start(Settings { max_connections_per_ip: 2, ..Settings::default() }).await;
    let (mut first, mut second) = (house.connect().await, house.connect().await);
    for caller in [&mut first, &mut second] {
        caller.send(&encode_command("PING")).await;
        assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    }
    assert!(house.connect().await.is_closed().await, "the third");
    first.send(&encode_command("QUIT")).await;
    assert_eq!(first.read_to_end().await, "+OK\r\n");
    drop(first);
    // A place is free as soon as the other side knows.
    for _ in 0..1_000 {
        let mut again = house.connect().await;
        again.send(&encode_command("PING")).await;
        if again.read_until_or_end(b"\r\n").await == "+PONG\r\n" {
            return;
        }
    }
    panic!("the place stays taken");
}

#[tokio::test]
async fn connections_over_the_maximum_wait() {
    let house = TestRespServer::start(Settings { max_connections: 1, ..Settings::default() }).await;
    let mut first = house.connect().await;
    first.send(&encode_command("PING")).await;
    assert_eq!(first.read_until(b"\r\n").await, "+PONG\r\n");
    let mut second = house.connect().await;
    second.send(&encode_command("PING")).await;
    first.send(&encode_command("QUIT")).await;
    assert_eq!(first.read_to_end().await, "+OK\r\n");
    drop(first);
    assert_eq!(second.read_until(b"\r\n").await, "+PONG\r\n");
}
