//! The gateway on a unix socket: whom it takes for the client, and what it tells the upstream.

use std::net::Ipv4Addr;

use tidegate_edge::listen;
use tokio::net::UnixListener;

use super::identity::proxy_headers;
use super::upstream::Upstream;
use super::{Gate, to};
use crate::unix::{SocketPath, say};

/// One request an hour for each address; a proxy on this machine is believed.
const BEHIND: &str = "identity: { ip: { trusted_proxies: [unix] } }\n\
                      rules: [{ id: one, key_by: ip, limit: 1/h }]";
const BARE: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

fn open(rules: &str, upstream: &Upstream, proxy_protocol: bool) -> (Gate, SocketPath) {
    let path = SocketPath::new();
    let listener = UnixListener::bind(path.path()).unwrap();
    let listen = listen::Settings { proxy_protocol, ..listen::Settings::default() };
    (Gate::open_on(listener, rules, to(&[upstream.address]), listen), path)
}

fn get(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

async fn status(path: &SocketPath, bytes: &[u8]) -> String {
    let told = say(path, bytes).await;
    told.split(' ').nth(1).unwrap_or("closed").to_owned()
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_and_the_upstream_hears_of_nobody_else() {
    let mut upstream = Upstream::start().await;
    let (_gate, path) = open(BEHIND, &upstream, false);
    for (client, expected) in [("9.9.9.9", "200"), ("6.6.6.6, 9.9.9.9", "429"), ("8.8.8.8", "200")]
    {
        let request = get(&format!("X-Forwarded-For: {client}\r\n"));
        assert_eq!(status(&path, request.as_bytes()).await, expected, "{client}");
    }
    let seen = upstream.request().await;
    assert!(seen.contains("x-forwarded-for: 9.9.9.9\r\n"), "{seen}");
    assert!(seen.contains("x-real-ip: 9.9.9.9\r\n"), "{seen}");
}

#[tokio::test]
async fn nobody_is_made_up_where_nobody_is_named_or_believed() {
    let mut upstream = Upstream::start().await;
    for rules in [BARE, BEHIND] {
        let (_gate, path) = open(rules, &upstream, false);
        let claim = if rules == BARE { "X-Forwarded-For: 9.9.9.9\r\n" } else { "" };
        assert_eq!(status(&path, get(claim).as_bytes()).await, "200");
        let seen = upstream.request().await;
        assert!(!seen.contains("forwarded-for") && !seen.contains("real-ip"), "{seen}");
        // All of them are one client, which is stricter than none.
        let other = claim.replace('9', "8");
        assert_eq!(status(&path, get(&other).as_bytes()).await, "429", "{rules}");
    }
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client_here_too() {
    let mut upstream = Upstream::start().await;
    for (rules, expected) in [(BEHIND, Some("192.0.2.7")), (BARE, None)] {
        let (_gate, path) = open(rules, &upstream, true);
        let [first, second] = proxy_headers(Ipv4Addr::new(192, 0, 2, 7))
            .map(|header| [header, get("").into_bytes()].concat());
        assert_eq!(status(&path, &first).await, "200");
        let seen = upstream.request().await;
        let named = expected.map(|ip| format!("x-real-ip: {ip}\r\n"));
        assert_eq!(seen.contains("x-real-ip"), named.is_some(), "{seen}");
        assert!(named.is_none_or(|named| seen.contains(&named)), "{seen}");
        assert_eq!(status(&path, &second).await, "429", "one client, however it is named");
        assert_eq!(status(&path, get("").as_bytes()).await, "closed", "it is never guessed");
    }
}
