//! The stop: what was read is answered, then the connection is closed.

use tidegate_edge::listen::Settings;

use super::{House, command};

#[tokio::test(start_paused = true)]
async fn the_next_reply_after_the_stop_is_the_last() {
    let house = House::open(Settings::default()).await;
    let (mut busy, mut begun) = (house.caller().await, house.caller().await);
    for caller in [&mut busy, &mut begun] {
        caller.send(&command("PING")).await;
        assert_eq!(caller.raw_until(b"\r\n").await, "+PONG\r\n");
    }
    let pipeline = command("CL.THROTTLE a 15 30 60").repeat(3);
    let (first, rest) = pipeline.split_at(pipeline.len() - 5);
    begun.send(first).await;
    begun.raw_until(b"*5\r\n").await;
    house.stop.send(()).unwrap();
    while !house.status.is_draining() {
        tokio::task::yield_now().await;
    }
    busy.send(&pipeline).await;
    assert_eq!(busy.raw_to_end().await.matches("*5\r\n").count(), 3);
    begun.send(rest).await;
    assert_eq!(begun.raw_to_end().await.matches("*5\r\n").count(), 2, "its third, and its second");
    drop((busy, begun));
    house.served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_when_the_grace_ends() {
    let house = House::open(Settings::default()).await;
    let mut idle = house.caller().await;
    idle.send(&command("PING")).await;
    assert_eq!(idle.raw_until(b"\r\n").await, "+PONG\r\n");
    house.stop.send(()).unwrap();
    let begun = tokio::time::Instant::now();
    assert!(idle.is_closed().await);
    drop(idle);
    house.served.await.unwrap();
    assert!(begun.elapsed() <= Settings::default().drain_grace * 2, "{:?}", begun.elapsed());
}
