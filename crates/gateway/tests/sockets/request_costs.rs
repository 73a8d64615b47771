//! Concurrency slots that are held until the response ends, and costs that depend on the response.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_gateway::{AccessLog, Settings};
use tidegate_net::listen;
use tidegate_web::LogPaths;

use super::UNREACHED_LIMIT;
use super::scripted_upstream::{ScriptedUpstream, UpstreamReply, ok_response};
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::raw_client::encode_request;

const TWO_CONCURRENT: &str = "rules: [{ id: two, key_by: global, limit: { concurrent: 2 } }]";

/// The remaining quota of the only rule.
async fn remaining(gate: &TestGateway) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

async fn wait_for_remaining(gate: &TestGateway, expected: u64) {
    for _ in 0..100_000 {
        if remaining(gate).await == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} are left, not {expected}", remaining(gate).await);
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_response_ends() {
    let minute = Duration::from_secs(50);
    let mut upstream = ScriptedUpstream::start_replying(move |_| {
        UpstreamReply::SendAfter(minute, ok_response("late"))
    })
    .await;
    let gate = TestGateway::start(TWO_CONCURRENT, upstream.address).await;
    let (mut first, mut second) = (gate.connect().await, gate.connect().await);
    first.send(&encode_request("GET", "/1", b"")).await;
    second.send(&encode_request("GET", "/2", b"")).await;
    upstream.next_request().await;
    upstream.next_request().await;
    let refused = gate.connect().await.request("GET", "/3", b"").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let policy = "\"two\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(refused.header("ratelimit-policy"), Some(policy));
    assert_eq!(first.read_response().await.unwrap().body, "late");
    assert_eq!(second.read_response().await.unwrap().body, "late");
    wait_for_remaining(&gate, 2).await;
    // The store's clock did not advance, so no slot expired by itself.
    assert_eq!(first.request("GET", "/4", b"").await.status, 200);
}

#[tokio::test]
async fn disconnected_client_frees_its_slot() {
    let hour = Duration::from_secs(3_600);
    let mut upstream = ScriptedUpstream::start_replying(move |_| {
        UpstreamReply::SendAfter(hour, ok_response("late"))
    })
    .await;
    let gate = TestGateway::start(TWO_CONCURRENT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(&encode_request("GET", "/", b"")).await;
    upstream.next_request().await;
    assert_eq!(remaining(&gate).await, 1);
    drop(caller);
    wait_for_remaining(&gate, 2).await;
}

#[tokio::test]
async fn upgraded_connection_holds_slot_until_close() {
    let agree = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let mut upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::Echo(agree.to_vec())).await;
    let gate = TestGateway::start(TWO_CONCURRENT, upstream.address).await;
    let mut caller = gate.connect().await;
    caller.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await;
    upstream.next_request().await;
    assert_eq!(caller.read_response().await.unwrap().status, 101);
    caller.send(b"ping").await;
    caller.read_until(b"ping").await;
    assert_eq!(remaining(&gate).await, 1);
    drop(caller);
    wait_for_remaining(&gate, 2).await;
}

#[tokio::test]
async fn failed_upstream_frees_the_slot() {
    let upstream =
        ScriptedUpstream::start_replying(|_| UpstreamReply::SendAndClose(b"nonsense".to_vec()))
            .await;
    let gate = TestGateway::start(TWO_CONCURRENT, upstream.address).await;
    for _ in 0..5 {
        assert_eq!(gate.connect().await.request("GET", "/", b"").await.status, 502);
        wait_for_remaining(&gate, 2).await;
    }
}

#[tokio::test]
async fn request_header_sets_the_cost() {
    let upstream = ScriptedUpstream::start().await;
    let rules =
        "rules: [{ id: r, key_by: global, limit: 100/h, cost: { header: x-cost, max: 50 } }]";
    let gate = TestGateway::start(rules, upstream.address).await;
    let mut caller = gate.connect().await;
    for (header, expected) in [("x-cost: 30\r\n", 70), ("", 69), ("x-cost: 0\r\n", 68)] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n");
        caller.send(head.as_bytes()).await;
        assert_eq!(caller.read_response().await.unwrap().status, 200);
        assert_eq!(remaining(&gate).await, expected, "{header}");
    }
}

#[tokio::test]
async fn chunked_body_is_charged_by_size() {
    let upstream = ScriptedUpstream::start().await;
    let rules = "rules: [{ id: r, key_by: global, limit: 100/h, cost: { body: 1KiB } }]";
    let gate = TestGateway::start(rules, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(caller.request("POST", "/", &[b'a'; 3_000]).await.status, 200);
    assert_eq!(remaining(&gate).await, 97);
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for _ in 0..5 {
        caller.send(format!("fff\r\n{}\r\n", "a".repeat(0xfff)).as_bytes()).await;
    }
    caller.send(b"0\r\n\r\n").await;
    assert_eq!(caller.read_response().await.unwrap().status, 200);
    wait_for_remaining(&gate, 77).await;
}

#[tokio::test]
async fn response_cost_is_charged_after_completion() {
    let response = b"HTTP/1.1 200 OK\r\nX-Tokens: 40\r\nContent-Length: 2000\r\n\r\n";
    let response = [&response[..], &[b'a'; 2_000]].concat();
    let upstream =
        ScriptedUpstream::start_replying(move |_| UpstreamReply::Send(response.clone())).await;
    for (cost, expected) in [
        ("{ response_header: x-tokens, max: 1000, estimate: 10 }", [60, 20, 0]),
        ("{ response: 1KiB }", [98, 96, 94]),
    ] {
        let rules = format!("rules: [{{ id: r, key_by: global, limit: 100/h, cost: {cost} }}]");
        let gate = TestGateway::start(&rules, upstream.address).await;
        let mut caller = gate.connect().await;
        for expected in expected {
            assert_eq!(caller.request("GET", "/", b"").await.status, 200);
            wait_for_remaining(&gate, expected).await;
        }
        if cost.contains("header") {
            assert_eq!(caller.request("GET", "/", b"").await.status, 429, "the counter is in debt");
        }
    }
}

#[tokio::test]
async fn access_log_records_status_and_bytes() {
    let upstream = ScriptedUpstream::start().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let log_records = Arc::clone(&records);
    let log = AccessLog::new(LogPaths::Raw, move |access| {
        let record = (access.method.to_string(), access.path.clone(), access.status, access.bytes);
        log_records.lock().push(record);
    });
    let settings = Settings { access_log: Some(log), ..settings_for(&[upstream.address]) };
    let gate =
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await;
    let mut caller = gate.connect().await;
    assert_eq!(caller.request("GET", "/a?secret=1", b"").await.status, 200);
    assert_eq!(caller.request("POST", "/b%2f", b"x").await.status, 400);
    while records.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    let records = records.lock().clone();
    assert_eq!(records[0], ("GET".to_owned(), "/a".to_owned(), 200, 5));
    assert_eq!((records[1].1.as_str(), records[1].2), ("/b%2f", 400));
}
