//! Tests shutdown: the server answers the commands it has read, then closes the connection.

use tidegate_net::listen::Settings;

use super::{TestRespServer, encode_command};

#[tokio::test(start_paused = true)]
async fn read_commands_are_answered_during_drain() {
    let server = TestRespServer::start(Settings::default()).await;
    let (mut busy, mut begun) = (server.connect().await, server.connect().await);
    for caller in [&mut busy, &mut begun] {
        caller.send(&encode_command("PING")).await;
        assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    }
    let pipeline = encode_command("CL.THROTTLE a 15 30 60").repeat(3);
    let (first, rest) = pipeline.split_at(pipeline.len() - 5);
    begun.send(first).await;
    begun.read_until(b"*5\r\n").await;
    server.stop.send(()).unwrap();
    while !server.status.is_draining() {
        tokio::task::yield_now().await;
    }
    busy.send(&pipeline).await;
    assert_eq!(busy.read_to_end().await.matches("*5\r\n").count(), 3);
    begun.send(rest).await;
    assert_eq!(begun.read_to_end().await.matches("*5\r\n").count(), 2, "the second and the third");
    drop((busy, begun));
    server.server_task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_drain_grace() {
    let server = TestRespServer::start(Settings::default()).await;
    let mut idle = server.connect().await;
    idle.send(&encode_command("PING")).await;
    assert_eq!(idle.read_until(b"\r\n").await, "+PONG\r\n");
    server.stop.send(()).unwrap();
    let begun = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    server.server_task.await.unwrap();
    assert!(begun.elapsed() <= Settings::default().drain_grace * 2, "{:?}", begun.elapsed());
}
