//! Client identity: a client gets no new counter by what it claims about itself.

use std::net::Ipv4Addr;

use tidegate_net::listen;

use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::raw_client::RawClient;

/// One request per hour and address; every local peer is a trusted proxy.
const BEHIND_PROXY: &str = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n\
                      rules: [{ id: one, key_by: ip, limit: 1/h }]";
const WITHOUT_PROXY: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

async fn get_status(caller: &mut RawClient, target: &str, headers: &str) -> u16 {
    caller.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).await;
    caller.read_response().await.unwrap().status
}

#[tokio::test]
async fn untrusted_client_cannot_claim_address() {
    let upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(WITHOUT_PROXY, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(get_status(&mut caller, "/", "").await, 200);
    for claim in [
        "X-Forwarded-For: 6.6.6.6\r\n",
        "Forwarded: for=6.6.6.6\r\n",
        "X-Real-IP: 6.6.6.6\r\n",
        "True-Client-IP: 6.6.6.6\r\n",
        "CF-Connecting-IP: 6.6.6.6\r\n",
    ] {
        assert_eq!(get_status(&mut caller, "/", claim).await, 429, "{claim}");
    }
}

#[tokio::test]
async fn last_untrusted_address_identifies_the_client() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(BEHIND_PROXY, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(get_status(&mut caller, "/", "X-Forwarded-For: 9.9.9.9\r\n").await, 200);
    let seen = upstream.next_request().await;
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
        assert_eq!(get_status(&mut caller, "/", spoofed).await, 429, "{spoofed}");
    }
    assert_eq!(
        get_status(&mut caller, "/", "X-Forwarded-For: 6.6.6.6\r\n").await,
        200,
        "another client"
    );
}

#[tokio::test]
async fn path_spellings_count_as_one_endpoint() {
    let upstream = ScriptedUpstream::start().await;
    let rules = "rules: [{ id: one, match: { endpoint: /api/x }, key_by: endpoint, limit: 1/h }]";
    let gate = TestGateway::start(rules, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(get_status(&mut caller, "/api/x", "").await, 200);
    for target in ["/api/x?a", "/api//x", "/api/./x", "/%61pi/x", "/b/../api/x?", "//api/x"] {
        assert_eq!(get_status(&mut caller, target, "").await, 429, "{target}");
    }
    let overridden = "X-HTTP-Method-Override: PUT\r\nX-Original-URL: /y\r\n";
    assert_eq!(get_status(&mut caller, "/api/x", overridden).await, 429);
}

#[tokio::test]
async fn unknown_key_counts_as_ip_duplicate_rejected() {
    let mut upstream = ScriptedUpstream::start().await;
    let rules = "identity: { api_key: { header: x-api-key, unknown: ip } }\n\
                 subjects: [{ api_key: known, tier: paid }]\n\
                 rules: [{ id: one, key_by: api_key, limit: 1/h }]";
    let gate = TestGateway::start(rules, upstream.address).await;
    let mut caller = gate.connect().await;
    assert_eq!(get_status(&mut caller, "/", "X-Api-Key: random1\r\n").await, 200);
    assert_eq!(get_status(&mut caller, "/", "X-Api-Key: random2\r\n").await, 429);
    assert_eq!(get_status(&mut caller, "/", "").await, 429);
    assert_eq!(get_status(&mut caller, "/", "X-Api-Key: known\r\n").await, 200);
    assert_eq!(upstream.received_requests().len(), 2);
    let doubled = "X-Api-Key: known\r\nX-Api-Key: known\r\n";
    assert_eq!(get_status(&mut caller, "/", doubled).await, 400);
    assert_eq!(upstream.received_requests().len(), 0);
}

/// The PROXY protocol header for a client, in both versions.
pub(super) fn proxy_headers(client: Ipv4Addr) -> [Vec<u8>; 2] {
    let first = format!("PROXY TCP4 {client} 127.0.0.1 5000 80\r\n").into_bytes();
    let mut second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    second.extend(client.octets());
    second.extend([127, 0, 0, 1, 0x13, 0x88, 0, 80]);
    [first, second]
}

#[tokio::test]
async fn proxy_protocol_is_honored_from_trusted_peer() {
    let mut upstream = ScriptedUpstream::start().await;
    let listen = listen::Settings { proxy_protocol: true, ..listen::Settings::default() };
    for (rules, expected) in [(BEHIND_PROXY, "192.0.2.7"), (WITHOUT_PROXY, "127.0.0.1")] {
        let mut statuses = Vec::new();
        let gate =
            TestGateway::start_with(rules, settings_for(&[upstream.address]), listen.clone()).await;
        for header in proxy_headers(Ipv4Addr::new(192, 0, 2, 7)) {
            let mut caller = gate.connect().await;
            // Split into two writes, followed by the request.
            let (begin, rest) = header.split_at(7);
            caller.send(begin).await;
            tokio::task::yield_now().await;
            caller.send(rest).await;
            statuses.push(get_status(&mut caller, "/", "").await);
        }
        assert_eq!(statuses, [200, 429], "both versions name the same client");
        let seen = upstream.next_request().await;
        assert!(seen.contains(&format!("x-real-ip: {expected}\r\n")), "{seen}");
        let mut without = gate.connect().await;
        without.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(without.read_response().await.is_none(), "the PROXY header is required");
    }
}

#[tokio::test]
async fn unexpected_proxy_header_is_rejected() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(BEHIND_PROXY, upstream.address).await;
    for header in proxy_headers(Ipv4Addr::new(192, 0, 2, 7)) {
        let mut caller = gate.connect().await;
        caller.send(&header).await;
        caller.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(caller.read_response().await.is_none_or(|response| response.status == 400));
    }
    assert_eq!(upstream.received_requests().len(), 0);
}
