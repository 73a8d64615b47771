//! The stop: what was read is answered, then the connection is closed.

use tidegate_net::listen::Settings;

use super::{TestRespServer, encode_command};

#[tokio::test(start_paused = true)]
async fn read_commands_are_answered_during_drain() {
    let house = TestRespServer::start(Settings::default()).await;
    let (mut busy, mut begun) = (house.connect().await, house.connect().await);
    for caller in [&mut busy, &mut begun] {
        caller.send(&encode_command("PING")).await;
        assert_eq!(caller.read_until(b"\r\n").await, "+PONG\r\n");
    }
    let pipeline = encode_command("CL.THROTTLE a 15 30 60").repeat(3);
    let (first, rest) = pipeline.split_at(pipeline.len() - 5);
    begun.send(first).await;
    begun.read_until(b"*5\r\n").await;
    house.stop.send(()).unwrap();
    while !house.status.is_draining() {
        tokio::task::yield_now().await;
    }
    busy.send(&pipeline).await;
    assert_eq!(busy.read_to_end().await.matches("*5\r\n").count(), 3);
    begun.send(rest).await;
    assert_eq!(begun.read_to_end().await.matches("*5\r\n").count(), 2, "its third, and its second");
    drop((busy, begun));
    house.server_task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_drain_grace() {
    let house = TestRespServer::start(Settings::default()).await;
    let mut idle = house.connect().await;
    idle.send(&encode_command("PING")).await;
    assert_eq!(idle.read_until(b"\r\n").await, "+PONG\r\n");
    house.stop.send(()).unwrap();
    let begun = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    house.server_task.await.unwrap();
    assert!(begun.elapsed() <= Settings::default().drain_grace * 2, "{:?}", begun.elapsed());
}
