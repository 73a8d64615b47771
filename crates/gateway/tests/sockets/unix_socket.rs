//! The gateway on a Unix socket: which client it counts, and which forwarding headers it sends.

use std::net::Ipv4Addr;

use tidegate_net::listen;
use tokio::net::UnixListener;

use super::client_identity::proxy_headers;
use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::unix_socket::{TempSocketPath, exchange_bytes};

/// One request per hour and address; a proxy on this machine is trusted.
const BEHIND_PROXY: &str = "identity: { ip: { trusted_proxies: [unix] } }\n\
                      rules: [{ id: one, key_by: ip, limit: 1/h }]";
const WITHOUT_PROXY: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

fn start_on_socket(
    rules: &str,
    upstream: &ScriptedUpstream,
    proxy_protocol: bool,
) -> (TestGateway, TempSocketPath) {
    let path = TempSocketPath::new();
    let listener = UnixListener::bind(path.path()).unwrap();
    let listen = listen::Settings { proxy_protocol, ..listen::Settings::default() };
    (
        TestGateway::start_on_listener(listener, rules, settings_for(&[upstream.address]), listen),
        path,
    )
}

fn get_request(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

async fn request_status(path: &TempSocketPath, bytes: &[u8]) -> String {
    let response = exchange_bytes(path, bytes).await;
    response.split(' ').nth(1).unwrap_or("closed").to_owned()
}

#[tokio::test]
async fn trusted_proxy_address_is_forwarded() {
    let mut upstream = ScriptedUpstream::start().await;
    let (_gate, path) = start_on_socket(BEHIND_PROXY, &upstream, false);
    for (client, expected) in [("9.9.9.9", "200"), ("6.6.6.6, 9.9.9.9", "429"), ("8.8.8.8", "200")]
    {
        let request = get_request(&format!("X-Forwarded-For: {client}\r\n"));
        assert_eq!(request_status(&path, request.as_bytes()).await, expected, "{client}");
    }
    let seen = upstream.next_request().await;
    assert!(seen.contains("x-forwarded-for: 9.9.9.9\r\n"), "{seen}");
    assert!(seen.contains("x-real-ip: 9.9.9.9\r\n"), "{seen}");
}

#[tokio::test]
async fn missing_client_address_is_not_invented() {
    let mut upstream = ScriptedUpstream::start().await;
    for rules in [WITHOUT_PROXY, BEHIND_PROXY] {
        let (_gate, path) = start_on_socket(rules, &upstream, false);
        let claim = if rules == WITHOUT_PROXY { "X-Forwarded-For: 9.9.9.9\r\n" } else { "" };
        assert_eq!(request_status(&path, get_request(claim).as_bytes()).await, "200");
        let seen = upstream.next_request().await;
        assert!(!seen.contains("forwarded-for") && !seen.contains("real-ip"), "{seen}");
        // All requests count as one client, which is stricter than not counting them.
        let other = claim.replace('9', "8");
        assert_eq!(request_status(&path, get_request(&other).as_bytes()).await, "429", "{rules}");
    }
}

#[tokio::test]
async fn proxy_protocol_names_client_on_socket() {
    let mut upstream = ScriptedUpstream::start().await;
    for (rules, expected) in [(BEHIND_PROXY, Some("192.0.2.7")), (WITHOUT_PROXY, None)] {
        let (_gate, path) = start_on_socket(rules, &upstream, true);
        let [first, second] = proxy_headers(Ipv4Addr::new(192, 0, 2, 7))
            .map(|header| [header, get_request("").into_bytes()].concat());
        assert_eq!(request_status(&path, &first).await, "200");
        let seen = upstream.next_request().await;
        let real_ip = expected.map(|ip| format!("x-real-ip: {ip}\r\n"));
        assert_eq!(seen.contains("x-real-ip"), real_ip.is_some(), "{seen}");
        assert!(real_ip.is_none_or(|real_ip| seen.contains(&real_ip)), "{seen}");
        assert_eq!(
            request_status(&path, &second).await,
            "429",
            "both versions name the same client"
        );
        assert_eq!(
            request_status(&path, get_request("").as_bytes()).await,
            "closed",
            "the PROXY header is required"
        );
    }
}
