//! Requests that wait in a delay queue.

use std::time::Duration;

use tokio::time::Instant;

use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_gateway::Settings;
use tidegate_net::listen;

/// Ten requests per second, at even intervals; five may wait.
const QUEUE_RULES: &str = "rules: [{ id: q, key_by: global, \
                     limit: { requests: 10, window: 1s, burst: 6, algorithm: leaky_bucket, queue: true } }]";

#[tokio::test(start_paused = true)]
async fn queued_requests_leave_at_constant_rate() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(QUEUE_RULES, upstream.address).await;
    let mut callers = Vec::new();
    let start = Instant::now();
    for n in 0..6 {
        let mut caller = gate.connect().await;
        caller.send(format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        if n == 0 {
            upstream.next_request().await;
        }
        callers.push(caller);
        // Until the request is queued; nothing else runs meanwhile.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    let refused = gate.connect().await.request("GET", "/7", b"").await;
    assert_eq!(refused.status, 429, "the queue is full");
    for n in 1..6_u32 {
        let seen = upstream.next_request().await;
        assert!(seen.starts_with(&format!("GET /{n} ")), "{n}: {seen}");
        let expected = Duration::from_millis(100) * n;
        let late = start.elapsed().checked_sub(expected).expect("not before its turn");
        assert!(late < Duration::from_millis(20), "{n}: {late:?} late");
    }
    for mut caller in callers {
        assert_eq!(caller.read_response().await.unwrap().status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn last_queued_client_frees_place_on_disconnect() {
    let upstream = ScriptedUpstream::start_replying(|_| UpstreamReply::Send(ok_response(""))).await;
    let gate = TestGateway::start(QUEUE_RULES, upstream.address).await;
    let remaining = async || {
        let decision = gate.limiter.peek(&[("ip", "x")].into_iter().collect(), None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    let mut first = gate.connect().await;
    assert_eq!(first.request("GET", "/", b"").await.status, 200);
    let mut waiting = Vec::new();
    for n in 0..2 {
        let mut caller = gate.connect().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        while remaining().await > 4 - n {
            tokio::task::yield_now().await;
        }
        waiting.push(caller);
    }
    // The request in the middle is not refunded: the last one already has its departure time.
    let last = waiting.pop();
    drop(waiting);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(remaining().await, 3);
    drop(last);
    while remaining().await < 4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn full_queue_returns_503_uncharged() {
    let upstream = ScriptedUpstream::start().await;
    let settings = Settings { max_waiting: 1, ..settings_for(&[upstream.address]) };
    let gate = TestGateway::start_with(QUEUE_RULES, settings, listen::Settings::default()).await;
    assert_eq!(gate.connect().await.request("GET", "/", b"").await.status, 200);
    let mut waits = gate.connect().await;
    waits.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let remaining = async || {
        let decision = gate.limiter.peek(&[("ip", "x")].into_iter().collect(), None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    while remaining().await > 4 {
        tokio::task::yield_now().await;
    }
    let mut third = gate.connect().await;
    assert_eq!(third.request("GET", "/", b"").await.status, 503);
    assert_eq!(remaining().await, 4);
    assert_eq!(waits.read_response().await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_or_rejects_queued_requests() {
    let upstream = ScriptedUpstream::start().await;
    let slow = QUEUE_RULES.replace("window: 1s", "window: 200s");
    let gate = TestGateway::start(&slow, upstream.address).await;
    assert_eq!(gate.connect().await.request("GET", "/", b"").await.status, 200);
    let mut callers = Vec::new();
    for _ in 0..2 {
        let mut caller = gate.connect().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        callers.push(caller);
    }
    gate.stop.send(()).unwrap();
    // Due after 20 s and after 40 s; the drain timeout is 30 s.
    let (mut second, mut first) = (callers.pop().unwrap(), callers.pop().unwrap());
    assert_eq!(second.read_response().await.unwrap().status, 503);
    assert_eq!(first.read_response().await.unwrap().status, 200);
    drop((first, second));
    gate.server_task.await.unwrap();
}
