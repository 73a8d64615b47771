//! Tests timeouts and connection limits. Tokio's clock is paused in the timeout tests and advances
//! only when every task waits.

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

/// Returns how long it takes until the server closes the connection.
async fn time_until_closed(caller: &mut tidegate_fixtures::raw_client::RawClient) -> Duration {
    let begun = tokio::time::Instant::now();
    assert!(caller.is_closed().await);
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn unfinished_command_times_out() {
    let server = TestRespServer::start(short_timeouts()).await;
    let mut caller = server.connect().await;
    caller.send(&encode_command("PING")).await;
    assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    caller.send(b"*2\r\n$4\r\nECHO\r\n$10\r\nab").await;
    let after = time_until_closed(&mut caller).await;
    assert!(after >= 10 * SECOND && after <= 20 * SECOND, "{after:?}");
}

/// A byte every few seconds does not count as progress, because the command stays incomplete.
#[tokio::test(start_paused = true)]
async fn trickled_bytes_do_not_extend_timeout() {
    let server = TestRespServer::start(short_timeouts()).await;
    let mut caller = server.connect().await;
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
    let server = TestRespServer::start(short_timeouts()).await;
    let mut caller = server.connect().await;
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
    let server =
        TestRespServer::start(Settings { max_connections_per_ip: 2, ..Settings::default() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for caller in [&mut first, &mut second] {
        caller.send(&encode_command("PING")).await;
        assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    }
    assert!(server.connect().await.is_closed().await, "the third is rejected");
    first.send(&encode_command("QUIT")).await;
    assert_eq!(first.read_to_end().await, "+OK\r\n");
    drop(first);
    // The server frees the place once it notices that the connection is closed.
    for _ in 0..1_000 {
        let mut again = server.connect().await;
        again.send(&encode_command("PING")).await;
        if again.read_until_or_end(b"\r\n").await == "+PONG\r\n" {
            return;
        }
    }
    panic!("the server did not free the place");
}

#[tokio::test]
async fn connections_over_the_maximum_wait() {
    let server =
        TestRespServer::start(Settings { max_connections: 1, ..Settings::default() }).await;
    let mut first = server.connect().await;
    first.send(&encode_command("PING")).await;
    assert_eq!(first.read_until(b"\r\n").await, "+PONG\r\n");
    let mut second = server.connect().await;
    second.send(&encode_command("PING")).await;
    first.send(&encode_command("QUIT")).await;
    assert_eq!(first.read_to_end().await, "+OK\r\n");
    drop(first);
    assert_eq!(second.read_until(b"\r\n").await, "+PONG\r\n");
}
