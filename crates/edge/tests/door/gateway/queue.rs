//! Requests that wait their turn.

use std::time::Duration;

use tokio::time::Instant;

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, to};
use tidegate_edge::gateway::Settings;
use tidegate_edge::listen;

/// Ten a second, one after the other, and five may wait.
const QUEUE: &str = "rules: [{ id: q, key_by: global, \
                     limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]";

#[tokio::test(start_paused = true)]
async fn they_leave_in_order_at_a_constant_rate() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(QUEUE, &upstream).await;
    let mut callers = Vec::new();
    let start = Instant::now();
    for n in 0..6 {
        let mut caller = gate.caller().await;
        caller.send(format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        if n == 0 {
            upstream.request().await;
        }
        callers.push(caller);
        // Until it is in the queue: nothing else is to do meanwhile.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    let refused = gate.caller().await.ask("GET", "/7", b"").await;
    assert_eq!(refused.status, 429, "as many wait as may");
    for n in 1..6_u32 {
        let seen = upstream.request().await;
        assert!(seen.starts_with(&format!("GET /{n} ")), "{n}: {seen}");
        let expected = Duration::from_millis(100) * n;
        let late = start.elapsed().checked_sub(expected).expect("not before its turn");
        assert!(late < Duration::from_millis(20), "{n}: {late:?} late");
    }
    for mut caller in callers {
        assert_eq!(caller.answer().await.unwrap().status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_at_the_end_of_the_line_gives_its_place_back() {
    let upstream = Upstream::replying(|_| Reply::Say(ok(""))).await;
    let gate = Gate::open(QUEUE, &upstream).await;
    let left = async || {
        let decision = gate.limiter.peek(&[("ip", "x")].into_iter().collect(), None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    let mut first = gate.caller().await;
    assert_eq!(first.ask("GET", "/", b"").await.status, 200);
    let mut waiting = Vec::new();
    for n in 0..2 {
        let mut caller = gate.caller().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        while left().await > 4 - n {
            tokio::task::yield_now().await;
        }
        waiting.push(caller);
    }
    // The one in the middle does not: the last has been told when it leaves.
    let last = waiting.pop();
    drop(waiting);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(left().await, 3);
    drop(last);
    while left().await < 4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_may_wait_in_all_are_turned_away_uncharged() {
    let upstream = Upstream::start().await;
    let settings = Settings { max_waiting: 1, ..to(&[upstream.address]) };
    let gate = Gate::open_with(QUEUE, settings, listen::Settings::default()).await;
    assert_eq!(gate.caller().await.ask("GET", "/", b"").await.status, 200);
    let mut waits = gate.caller().await;
    waits.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let left = async || {
        let decision = gate.limiter.peek(&[("ip", "x")].into_iter().collect(), None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    while left().await > 4 {
        tokio::task::yield_now().await;
    }
    let mut third = gate.caller().await;
    assert_eq!(third.ask("GET", "/", b"").await.status, 503);
    assert_eq!(left().await, 4);
    assert_eq!(waits.answer().await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_stop_lets_them_finish_or_tells_them() {
    let upstream = Upstream::start().await;
    let slow = QUEUE.replace("window: 1s", "window: 200s");
    let gate = Gate::open(&slow, &upstream).await;
    assert_eq!(gate.caller().await.ask("GET", "/", b"").await.status, 200);
    let mut callers = Vec::new();
    for _ in 0..2 {
        let mut caller = gate.caller().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        callers.push(caller);
    }
    gate.stop.send(()).unwrap();
    // Due after 20 s and after 40 s, and the drain takes 30 s.
    let (mut second, mut first) = (callers.pop().unwrap(), callers.pop().unwrap());
    assert_eq!(second.answer().await.unwrap().status, 503);
    assert_eq!(first.answer().await.unwrap().status, 200);
    drop((first, second));
    gate.served.await.unwrap();
}
