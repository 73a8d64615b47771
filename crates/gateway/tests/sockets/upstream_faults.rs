//! Upstreams that are unreachable, slow or send malformed responses: the gateway returns the right
//! status, and the next request succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_gateway::{Settings, UpstreamTimeouts};
use tidegate_net::listen;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};

use super::UNREACHED_LIMIT;
use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::{TestGateway, settings_for};

#[tokio::test]
async fn unreachable_upstream_returns_502() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gate = TestGateway::start_with(
        UNREACHED_LIMIT,
        settings_for(&[closed]),
        listen::Settings::default(),
    )
    .await;
    let mut caller = gate.connect().await;
    for _ in 0..2 {
        let response = caller.request("GET", "/", b"").await;
        assert_eq!(response.status, 502);
        assert!(response.body.contains("cannot be reached"), "{}", response.body);
        assert!(
            !response.body.contains(&closed.port().to_string()),
            "internal addresses are not revealed"
        );
    }
}

#[tokio::test]
async fn unsent_request_fails_over_to_next_server() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut upstream = ScriptedUpstream::start().await;
    let settings = settings_for(&[closed, upstream.address]);
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await;
    let mut caller = gate.connect().await;
    for _ in 0..10 {
        assert_eq!(caller.request("POST", "/", b"a body that is sent once").await.status, 200);
    }
    let seen = upstream.received_requests();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|seen| seen.ends_with("a body that is sent once")));
}

#[tokio::test]
async fn malformed_upstream_response_returns_502() {
    for nonsense in [
        &b"\0\0\0\0"[..],
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nBroken",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes",
        b"",
    ] {
        let first = AtomicUsize::new(0);
        let upstream =
            ScriptedUpstream::start_replying(move |_| match first.fetch_add(1, Relaxed) {
                0 => UpstreamReply::SendAndClose(nonsense.to_vec()),
                _ => UpstreamReply::Send(ok_response("ok")),
            })
            .await;
        let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
        let mut caller = gate.connect().await;
        let response = caller.request("GET", "/", b"").await;
        assert_eq!(response.status, 502, "{}", nonsense.escape_ascii());
        assert_eq!(caller.request("GET", "/", b"").await.body, "ok");
    }
}

#[tokio::test]
async fn truncated_upstream_response_stays_truncated() {
    for broken in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
    ] {
        let upstream =
            ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(broken.to_vec()))
                .await;
        let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
        let mut caller = gate.connect().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let got = caller.read_to_end().await;
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{}: {got}", broken.escape_ascii());
        assert_eq!(got.contains("abc"), broken.ends_with(b"abc"), "{got}");
        assert!(!got.ends_with("0\r\n\r\n"), "the response must not look complete: {got}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_upstream_times_out_with_504() {
    let hour = Duration::from_secs(3_600);
    let mut upstream = ScriptedUpstream::start_replying(move |_| {
        UpstreamReply::SendAfter(hour, ok_response("too late"))
    })
    .await;
    let mut settings = settings_for(&[upstream.address]);
    settings.upstreams[0].timeouts =
        UpstreamTimeouts { response: Duration::from_secs(5), ..UpstreamTimeouts::default() };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await;
    let started = tokio::time::Instant::now();
    let response = gate.connect().await.request("GET", "/", b"").await;
    assert_eq!(response.status, 504);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(upstream.received_requests().len(), 1, "a request that was sent is not retried");
}

#[tokio::test(start_paused = true)]
async fn stalled_response_body_times_out() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    let upstream = ScriptedUpstream::start_replying(|_| UpstreamReply::Send(half.to_vec())).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let started = tokio::time::Instant::now();
    assert!(caller.read_to_end().await.ends_with("abc"));
    assert!(started.elapsed() < Duration::from_secs(150), "{:?}", started.elapsed());
}

#[tokio::test]
async fn closed_idle_connection_is_not_reused() {
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(ok_response("bye"))).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    for _ in 0..50 {
        let response = caller.request("POST", "/", b"not twice").await;
        assert_eq!((response.status, response.body.as_str()), (200, "bye"));
    }
    assert_eq!(upstream.received_requests().len(), 50);
}

#[tokio::test]
async fn many_closed_idle_connections_lose_no_request() {
    const CONCURRENCY: usize = 40;
    let (all, close) = (Arc::new(Barrier::new(CONCURRENCY)), Arc::new(Notify::new()));
    let close_signal = Arc::clone(&close);
    let together = move |_: &str| {
        UpstreamReply::SendTogether(Arc::clone(&all), Arc::clone(&close_signal), ok_response("bye"))
    };
    let mut upstream = ScriptedUpstream::start_replying(together).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut callers = Vec::new();
    for _ in 0..CONCURRENCY {
        callers.push(gate.connect().await);
    }
    for round in 1..=3 {
        let requests = callers.iter_mut().map(|caller| caller.request("POST", "/", b"not twice"));
        for response in join_all(requests).await {
            assert_eq!((response.status, response.body.as_str()), (200, "bye"), "round {round}");
        }
        assert_eq!(upstream.received_requests().len(), CONCURRENCY, "round {round}");
        assert_eq!(upstream.connections.load(Relaxed), round * CONCURRENCY);
        // All upstream tasks wait for the notification by now: they run on this thread, and do not
        // yield between the response and the wait.
        close.notify_waiters();
    }
}

#[tokio::test]
async fn recovered_upstream_is_used_again() {
    let upstream = ScriptedUpstream::start().await;
    let address = upstream.address;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(caller.request("GET", "/", b"").await.status, 200);
    upstream.stop().await;
    let listener = loop {
        // The remaining task of the stopped upstream may still answer on the gateway's idle
        // connection.
        if let Ok(listener) = TcpListener::bind(address).await {
            break listener;
        }
        tokio::task::yield_now().await;
    };
    drop(listener);
    let settings = Settings { ..settings_for(&[address]) };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await;
    let mut caller = gate.connect().await;
    assert_eq!(caller.request("GET", "/", b"").await.status, 502);
    let restarted = ScriptedUpstream::start_at(address).await;
    assert_eq!(caller.request("GET", "/", b"").await.status, 200);
    drop(restarted);
}
