//! Who asks: what a client says of itself gives it no new counter.

use std::net::Ipv4Addr;

use tidegate_edge::listen;

use super::upstream::Upstream;
use super::{Gate, to};
use crate::house::Caller;

/// One request an hour for each address; whoever comes from here is a trusted proxy.
const BEHIND: &str = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n\
                      rules: [{ id: one, key_by: ip, limit: 1/h }]";
const BARE: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

async fn get(caller: &mut Caller, target: &str, headers: &str) -> u16 {
    caller.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).await;
    caller.answer().await.unwrap().status
}

#[tokio::test]
async fn a_stranger_claims_no_other_address() {
    let upstream = Upstream::start().await;
    let gate = Gate::open(BARE, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(get(&mut caller, "/", "").await, 200);
    for claim in [
        "X-Forwarded-For: 6.6.6.6\r\n",
        "Forwarded: for=6.6.6.6\r\n",
        "X-Real-IP: 6.6.6.6\r\n",
        "True-Client-IP: 6.6.6.6\r\n",
        "CF-Connecting-IP: 6.6.6.6\r\n",
    ] {
        assert_eq!(get(&mut caller, "/", claim).await, 429, "{claim}");
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_last_untrusted_address_counts() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(BEHIND, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(get(&mut caller, "/", "X-Forwarded-For: 9.9.9.9\r\n").await, 200);
    let seen = upstream.request().await;
    assert!(seen.contains("x-forwarded-for: 9.9.9.9, 127.0.0.1\r\n"), "{seen}");
    assert!(seen.contains("x-real-ip: 9.9.9.9\r\n"), "{seen}");
    for spoofed in [
        "X-Forwarded-For: 6.6.6.6, 9.9.9.9\r\n",
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.9\r\n",
        "X-Forwarded-For: 6.6.6.6, 9.9.9.9, 127.0.0.9\r\n",
        "X-Forwarded-For: 9.9.9.9:1234\r\n",
        "X-Forwarded-For: ::ffff:9.9.9.9\r\n",
        "X-Forwarded-For: 9.9.9.9\r\nForwarded: for=6.6.6.6\r\n",
    ] {
        assert_eq!(get(&mut caller, "/", spoofed).await, 429, "{spoofed}");
    }
    assert_eq!(get(&mut caller, "/", "X-Forwarded-For: 6.6.6.6\r\n").await, 200, "somebody else");
}

#[tokio::test]
async fn spellings_of_a_path_and_noise_in_a_query_are_one_endpoint() {
    let upstream = Upstream::start().await;
    let rules = "rules: [{ id: one, match: { endpoint: /api/x }, key_by: endpoint, limit: 1/h }]";
    let gate = Gate::open(rules, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(get(&mut caller, "/api/x", "").await, 200);
    for target in ["/api/x?a", "/api//x", "/api/./x", "/%61pi/x", "/b/../api/x?", "//api/x"] {
        assert_eq!(get(&mut caller, target, "").await, 429, "{target}");
    }
    let overridden = "X-HTTP-Method-Override: PUT\r\nX-Original-URL: /y\r\n";
    assert_eq!(get(&mut caller, "/api/x", overridden).await, 429);
}

#[tokio::test]
async fn random_keys_fall_to_the_address_and_doubled_ones_are_refused() {
    let mut upstream = Upstream::start().await;
    let rules = "identity: { api_key: { header: x-api-key, unknown: ip } }\n\
                 subjects: [{ api_key: known, tier: paid }]\n\
                 rules: [{ id: one, key_by: api_key, limit: 1/h }]";
    let gate = Gate::open(rules, &upstream).await;
    let mut caller = gate.caller().await;
    assert_eq!(get(&mut caller, "/", "X-Api-Key: random1\r\n").await, 200);
    assert_eq!(get(&mut caller, "/", "X-Api-Key: random2\r\n").await, 429);
    assert_eq!(get(&mut caller, "/", "").await, 429);
    assert_eq!(get(&mut caller, "/", "X-Api-Key: known\r\n").await, 200);
    assert_eq!(upstream.seen().len(), 2);
    let doubled = "X-Api-Key: known\r\nX-Api-Key: known\r\n";
    assert_eq!(get(&mut caller, "/", doubled).await, 400);
    assert_eq!(upstream.seen().len(), 0);
}

/// The header of the PROXY protocol for a client, in both versions.
pub(super) fn proxy_headers(client: Ipv4Addr) -> [Vec<u8>; 2] {
    let first = format!("PROXY TCP4 {client} 127.0.0.1 5000 80\r\n").into_bytes();
    let mut second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    second.extend(client.octets());
    second.extend([127, 0, 0, 1, 0x13, 0x88, 0, 80]);
    [first, second]
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client_if_its_sender_is_trusted() {
    let mut upstream = Upstream::start().await;
    let listen = listen::Settings { proxy_protocol: true, ..listen::Settings::default() };
    for (rules, expected) in [(BEHIND, "192.0.2.7"), (BARE, "127.0.0.1")] {
        let mut statuses = Vec::new();
        let gate = Gate::open_with(rules, to(&[upstream.address]), listen.clone()).await;
        for header in proxy_headers(Ipv4Addr::new(192, 0, 2, 7)) {
            let mut caller = gate.caller().await;
            // In pieces, and with the request behind it.
            let (begin, rest) = header.split_at(7);
            caller.send(begin).await;
            tokio::task::yield_now().await;
            caller.send(rest).await;
            statuses.push(get(&mut caller, "/", "").await);
        }
        assert_eq!(statuses, [200, 429], "one client, however it is named");
        let seen = upstream.request().await;
        assert!(seen.contains(&format!("x-real-ip: {expected}\r\n")), "{seen}");
        let mut without = gate.caller().await;
        without.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(without.answer().await.is_none(), "it is never guessed");
    }
}

#[tokio::test]
async fn where_it_is_not_expected_the_proxy_protocol_is_no_request() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(BEHIND, &upstream).await;
    for header in proxy_headers(Ipv4Addr::new(192, 0, 2, 7)) {
        let mut caller = gate.caller().await;
        caller.send(&header).await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(caller.answer().await.is_none_or(|answer| answer.status == 400));
    }
    assert_eq!(upstream.seen().len(), 0);
}
