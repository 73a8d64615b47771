//! Slots that are held while a request is answered, and costs that only its answer tells.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_edge::gateway::{AccessLog, Settings};
use tidegate_edge::listen;

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, MANY, to};
use crate::house::request;

const TWO_AT_ONCE: &str = "rules: [{ id: two, key_by: global, limit: { concurrent: 2 } }]";

/// What is left of the only rule.
async fn left(gate: &Gate) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

async fn until_left(gate: &Gate, expected: u64) {
    for _ in 0..100_000 {
        if left(gate).await == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} are left, not {expected}", left(gate).await);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_answer_has_ended() {
    let minute = Duration::from_secs(50);
    let mut upstream = Upstream::replying(move |_| Reply::SayLater(minute, ok("late"))).await;
    let gate = Gate::open(TWO_AT_ONCE, &upstream).await;
    let (mut first, mut second) = (gate.caller().await, gate.caller().await);
    first.send(&request("GET", "/1", b"")).await;
    second.send(&request("GET", "/2", b"")).await;
    upstream.request().await;
    upstream.request().await;
    let refused = gate.caller().await.ask("GET", "/3", b"").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let policy = "\"two\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(refused.header("ratelimit-policy"), Some(policy));
    assert_eq!(first.answer().await.unwrap().body, "late");
    assert_eq!(second.answer().await.unwrap().body, "late");
    until_left(&gate, 2).await;
    // The store's clock stood still, so the leases did not end by themselves.
    assert_eq!(first.ask("GET", "/4", b"").await.status, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_slot() {
    let hour = Duration::from_secs(3_600);
    let mut upstream = Upstream::replying(move |_| Reply::SayLater(hour, ok("late"))).await;
    let gate = Gate::open(TWO_AT_ONCE, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(&request("GET", "/", b"")).await;
    upstream.request().await;
    assert_eq!(left(&gate).await, 1);
    drop(caller);
    until_left(&gate, 2).await;
}

#[tokio::test]
async fn a_tunnel_holds_its_slot_until_it_ends() {
    let agree = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let mut upstream = Upstream::replying(|_| Reply::Echo(agree.to_vec())).await;
    let gate = Gate::open(TWO_AT_ONCE, &upstream).await;
    let mut caller = gate.caller().await;
    caller.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await;
    upstream.request().await;
    assert_eq!(caller.answer().await.unwrap().status, 101);
    caller.send(b"ping").await;
    caller.raw_until(b"ping").await;
    assert_eq!(left(&gate).await, 1);
    drop(caller);
    until_left(&gate, 2).await;
}

#[tokio::test]
async fn an_upstream_that_fails_frees_the_slot() {
    let upstream = Upstream::replying(|_| Reply::SayAndClose(b"nonsense".to_vec())).await;
    let gate = Gate::open(TWO_AT_ONCE, &upstream).await;
    for _ in 0..5 {
        assert_eq!(gate.caller().await.ask("GET", "/", b"").await.status, 502);
        until_left(&gate, 2).await;
    }
}

#[tokio::test]
async fn a_header_of_the_request_says_what_it_costs() {
    let upstream = Upstream::start().await;
    let rules =
        "rules: [{ id: r, key_by: global, limit: 100/h, cost: { header: x-cost, max: 50 } }]";
    let gate = Gate::open(rules, &upstream).await;
    let mut caller = gate.caller().await;
    for (header, expected) in [("x-cost: 30\r\n", 70), ("", 69), ("x-cost: 0\r\n", 68)] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n");
        caller.send(head.as_bytes()).await;
        assert_eq!(caller.answer().await.unwrap().status, 200);
        assert_eq!(left(&gate).await, expected, "{header}");
    }
}

#[tokio::test]
async fn a_body_costs_by_its_size_also_when_it_is_not_declared() {
    let upstream = Upstream::start().await;
    let rules = "rules: [{ id: r, key_by: global, limit: 100/h, cost: { body: 1KiB } }]";
    let gate = Gate::open(rules, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(caller.ask("POST", "/", &[b'a'; 3_000]).await.status, 200);
    assert_eq!(left(&gate).await, 97);
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for _ in 0..5 {
        caller.send(format!("fff\r\n{}\r\n", "a".repeat(0xfff)).as_bytes()).await;
    }
    caller.send(b"0\r\n\r\n").await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    until_left(&gate, 77).await;
}

#[tokio::test]
async fn what_the_answer_has_cost_is_charged_after_it() {
    let answer = b"HTTP/1.1 200 OK\r\nX-Tokens: 40\r\nContent-Length: 2000\r\n\r\n";
    let answer = [&answer[..], &[b'a'; 2_000]].concat();
    let upstream = Upstream::replying(move |_| Reply::Say(answer.clone())).await;
    for (cost, expected) in [
        ("{ response_header: x-tokens, max: 1000, estimate: 10 }", [60, 20, 0]),
        ("{ response: 1KiB }", [98, 96, 94]),
    ] {
        let rules = format!("rules: [{{ id: r, key_by: global, limit: 100/h, cost: {cost} }}]");
        let gate = Gate::open(&rules, &upstream).await;
        let mut caller = gate.caller().await;
        for expected in expected {
            assert_eq!(caller.ask("GET", "/", b"").await.status, 200);
            until_left(&gate, expected).await;
        }
        if cost.contains("header") {
            assert_eq!(caller.ask("GET", "/", b"").await.status, 429, "it is in debt");
        }
    }
}

#[tokio::test]
async fn the_access_log_tells_what_became_of_each_request() {
    let upstream = Upstream::start().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let log = AccessLog::new(move |access| {
        let line = (access.method.to_string(), access.path.clone(), access.status, access.bytes);
        heard.lock().push(line);
    });
    let settings = Settings { access_log: Some(log), ..to(&[upstream.address]) };
    let gate = Gate::open_with(MANY, settings, listen::Settings::default()).await;
    let mut caller = gate.caller().await;
    assert_eq!(caller.ask("GET", "/a?secret=1", b"").await.status, 200);
    assert_eq!(caller.ask("POST", "/b%2f", b"x").await.status, 400);
    while told.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    let told = told.lock().clone();
    assert_eq!(told[0], ("GET".to_owned(), "/a".to_owned(), 200, 5));
    assert_eq!((told[1].1.as_str(), told[1].2), ("/b%2f", 400));
}
