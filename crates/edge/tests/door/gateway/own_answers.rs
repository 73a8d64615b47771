//! What the gateway answers itself, and what a request costs that no upstream got.

use std::collections::HashSet;

use tidegate_edge::gateway::{Settings, Timeouts};
use tidegate_edge::listen;
use tokio::net::TcpListener;

use super::upstream::{Reply, Upstream, ok};
use super::{Gate, to};
use crate::house::Answer;

const TEN: &str = "rules: [{ id: ten, key_by: global, limit: 10/h }]";

/// Sends bytes on a new connection.
async fn answer(gate: &Gate, bytes: &str) -> Answer {
    let mut caller = gate.caller().await;
    caller.send(bytes.as_bytes()).await;
    caller.answer().await.unwrap()
}

/// An address without a listener.
async fn unused() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn every_answer_names_its_request() {
    let upstream = Upstream::start().await;
    let gate = Gate::open("rules: [{ id: one, key_by: global, limit: 1/h }]", &upstream).await;
    let mut names = HashSet::new();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", 429),
        ("GET /%2f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    ] {
        let answer = answer(&gate, request).await;
        assert_eq!(answer.status, status, "{request}");
        let name = answer.header("x-request-id").expect(request).to_owned();
        assert!(name.len() == 32 && names.insert(name), "{answer:?}");
    }
}

#[tokio::test]
async fn a_trusted_proxy_names_the_request_in_every_answer() {
    let rules = "identity: { ip: { trusted_proxies: [127.0.0.1] } }\n\
                 rules: [{ id: none, key_by: global, limit: { requests: deny } }]";
    let gate = Gate::open_with(rules, to(&[unused().await]), listen::Settings::default()).await;
    for path in ["/", "/%2f"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: theirs\r\n\r\n");
        assert_eq!(answer(&gate, &request).await.header("x-request-id"), Some("theirs"), "{path}");
    }
}

#[tokio::test]
async fn an_upstream_that_fails_has_cost_a_request_and_the_answer_says_so() {
    let asked = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let rude = Upstream::replying(|_| Reply::SayAndClose(b"nonsense".to_vec())).await;
    let hour = std::time::Duration::from_secs(3_600);
    let mut silent = Upstream::replying(move |_| Reply::SayLater(hour, ok("late"))).await;
    for (upstream, status) in [(rude.address, 502), (unused().await, 502), (silent.address, 504)] {
        let mut settings = to(&[upstream]);
        let response = std::time::Duration::from_millis(50);
        settings.upstreams[0].timeouts = Timeouts { response, ..Timeouts::default() };
        let gate = Gate::open_with(TEN, settings, listen::Settings::default()).await;
        for left in ["9", "8"] {
            let answer = answer(&gate, asked).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{answer:?}");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"ten\";q=10;w=3600"));
            assert!(answer.header("x-request-id").is_some());
        }
    }
    silent.request().await;
}

/// What is left of the only rule.
async fn left(gate: &Gate) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

fn refunding(upstreams: &[std::net::SocketAddr]) -> Settings {
    Settings { refund_unreachable: true, ..to(upstreams) }
}

#[tokio::test]
async fn where_it_is_set_a_charge_is_given_back_when_no_upstream_can_be_reached() {
    let closed = [unused().await, unused().await];
    let body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n".to_owned()
        + &"a".repeat(3_000);
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    for (rules, all) in [
        (TEN, 10),
        ("rules: [{ id: r, key_by: global, limit: 10/h, cost: { body: 1KiB } }]", 10),
        ("rules: [{ id: r, key_by: global, limit: { concurrent: 2 } }]", 2),
    ] {
        let gate = Gate::open_with(rules, refunding(&closed), listen::Settings::default()).await;
        for request in [&body, upgrade, &body] {
            assert_eq!(answer(&gate, request).await.status, 502);
            assert_eq!(left(&gate).await, all, "{rules}");
        }
    }
}

#[tokio::test]
async fn a_charge_stays_when_anything_was_sent() {
    let rude = Upstream::replying(|_| Reply::SayAndClose(Vec::new())).await;
    let gate = Gate::open_with(TEN, refunding(&[rude.address]), listen::Settings::default()).await;
    assert_eq!(answer(&gate, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 502);
    assert_eq!(left(&gate).await, 9);
}
