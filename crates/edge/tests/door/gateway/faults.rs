//! Upstreams that are gone, slow, rude or confused: the right status, and the next request is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_edge::gateway::{Settings, Timeouts};
use tidegate_edge::listen;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, MANY, to};

#[tokio::test]
async fn an_upstream_that_nobody_listens_at_is_a_bad_gateway() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gate = Gate::open_with(MANY, to(&[closed]), listen::Settings::default()).await;
    let mut caller = gate.caller().await;
    for _ in 0..2 {
        let answer = caller.ask("GET", "/", b"").await;
        assert_eq!(answer.status, 502);
        assert!(answer.body.contains("cannot be reached"), "{}", answer.body);
        assert!(
            !answer.body.contains(&closed.port().to_string()),
            "nothing of our insides is told"
        );
    }
}

#[tokio::test]
async fn another_server_gets_what_could_not_be_sent_to_the_first() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut upstream = Upstream::start().await;
    let settings = to(&[closed, upstream.address]);
    let gate = Gate::open_with(MANY, settings, listen::Settings::default()).await;
    let mut caller = gate.caller().await;
    for _ in 0..10 {
        assert_eq!(caller.ask("POST", "/", b"a body that is sent once").await.status, 200);
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|seen| seen.ends_with("a body that is sent once")));
}

#[tokio::test]
async fn nonsense_is_a_bad_gateway_and_never_reaches_the_client() {
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
        let upstream = Upstream::replying(move |_| match first.fetch_add(1, Relaxed) {
            0 => Reply::SayAndClose(nonsense.to_vec()),
            _ => Reply::Say(ok("well")),
        })
        .await;
        let gate = Gate::open(MANY, &upstream).await;
        let mut caller = gate.caller().await;
        let answer = caller.ask("GET", "/", b"").await;
        assert_eq!(answer.status, 502, "{}", nonsense.escape_ascii());
        assert_eq!(caller.ask("GET", "/", b"").await.body, "well");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_client_too() {
    for broken in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
    ] {
        let upstream = Upstream::replying(|_| Reply::SayAndClose(broken.to_vec())).await;
        let gate = Gate::open(MANY, &upstream).await;
        let mut caller = gate.caller().await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let got = caller.raw_to_end().await;
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{}: {got}", broken.escape_ascii());
        assert_eq!(got.contains("abc"), broken.ends_with(b"abc"), "{got}");
        assert!(!got.ends_with("0\r\n\r\n"), "it must not be taken for whole: {got}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_answer_is_given_up() {
    let hour = Duration::from_secs(3_600);
    let mut upstream = Upstream::replying(move |_| Reply::SayLater(hour, ok("too late"))).await;
    let mut settings = to(&[upstream.address]);
    settings.upstreams[0].timeouts =
        Timeouts { response: Duration::from_secs(5), ..Timeouts::default() };
    let gate = Gate::open_with(MANY, settings, listen::Settings::default()).await;
    let started = tokio::time::Instant::now();
    let answer = gate.caller().await.ask("GET", "/", b"").await;
    assert_eq!(answer.status, 504);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(upstream.seen().len(), 1, "what may have run is not sent again");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_coming_is_given_up() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    let upstream = Upstream::replying(|_| Reply::Say(half.to_vec())).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let started = tokio::time::Instant::now();
    assert!(caller.raw_to_end().await.ends_with("abc"));
    assert!(started.elapsed() < Duration::from_secs(150), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_kept_connection_that_the_upstream_closed_is_not_used() {
    let mut upstream = Upstream::replying(|_| Reply::SayAndClose(ok("bye"))).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    for _ in 0..50 {
        let answer = caller.ask("POST", "/", b"not twice").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "bye"));
    }
    assert_eq!(upstream.seen().len(), 50);
}

#[tokio::test]
async fn many_kept_connections_that_the_upstream_closed_are_none_too_many() {
    const AT_ONCE: usize = 40;
    let (all, close) = (Arc::new(Barrier::new(AT_ONCE)), Arc::new(Notify::new()));
    let told = Arc::clone(&close);
    let together =
        move |_: &str| Reply::SayTogether(Arc::clone(&all), Arc::clone(&told), ok("bye"));
    let mut upstream = Upstream::replying(together).await;
    let gate = Gate::open(MANY, &upstream).await;
    let mut callers = Vec::new();
    for _ in 0..AT_ONCE {
        callers.push(gate.caller().await);
    }
    for round in 1..=3 {
        let asking = callers.iter_mut().map(|caller| caller.ask("POST", "/", b"not twice"));
        for answer in join_all(asking).await {
            assert_eq!((answer.status, answer.body.as_str()), (200, "bye"), "round {round}");
        }
        assert_eq!(upstream.seen().len(), AT_ONCE, "round {round}");
        assert_eq!(upstream.connections.load(Relaxed), round * AT_ONCE);
        // Whoever has answered waits for it by now: all are on this thread, and wait for nothing in between.
        close.notify_waiters();
    }
}

#[tokio::test]
async fn an_upstream_that_comes_back_is_used_again() {
    let upstream = Upstream::start().await;
    let address = upstream.address;
    let gate = Gate::open(MANY, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(caller.ask("GET", "/", b"").await.status, 200);
    upstream.leave().await;
    let listener = loop {
        // The connection that the gateway keeps is answered once more by the task that is left.
        if let Ok(listener) = TcpListener::bind(address).await {
            break listener;
        }
        tokio::task::yield_now().await;
    };
    drop(listener);
    let settings = Settings { ..to(&[address]) };
    let gate = Gate::open_with(MANY, settings, listen::Settings::default()).await;
    let mut caller = gate.caller().await;
    assert_eq!(caller.ask("GET", "/", b"").await.status, 502);
    let back = Upstream::at(address).await;
    assert_eq!(caller.ask("GET", "/", b"").await.status, 200);
    drop(back);
}
