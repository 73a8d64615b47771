//! Tests the HTTP API on a Unix socket: local callers, trusted proxies, connection limits and
//! shutdown.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream as Blocking;

use tidegate_api::http::Settings;
use tidegate_net::listen;
use tokio::net::{UnixListener, UnixStream};

use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};
use tidegate_fixtures::unix_socket::{TempSocketPath, exchange_bytes};

fn start_on_socket(rules: &str, listen: listen::Settings) -> (TestServer, TempSocketPath) {
    let path = TempSocketPath::new();
    let listener = UnixListener::bind(path.path()).unwrap();
    (TestServer::start_on_listener(listener, rules, Settings::default(), listen), path)
}

fn encode_request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

async fn request_status(path: &TempSocketPath, request: &str) -> u16 {
    let response = exchange_bytes(path, request.as_bytes()).await;
    response.split(' ').nth(1).unwrap_or_else(|| panic!("`{response}`")).parse().unwrap()
}

#[tokio::test]
async fn unix_socket_peer_counts_as_local() {
    let (_server, path) = start_on_socket(TEN_PER_HOUR, listen::Settings::default());
    let request = |path, headers| encode_request("POST", path, headers, r#"{"facts":{}}"#);
    assert_eq!(request_status(&path, &request("/v1/check", "")).await, 200);
    for guarded in ["/v1/peek", "/v1/reset", "/v1/explain"] {
        assert_eq!(request_status(&path, &request(guarded, "")).await, 200, "{guarded}");
        let page = "Origin: https://example.com\r\n";
        assert_eq!(
            request_status(&path, &request(guarded, page)).await,
            403,
            "{guarded} from a page"
        );
    }
}

/// Rules that allow two requests per hour for each client.
fn two_per_hour_rules(identity: &str) -> String {
    format!("identity: {{ {identity} }}\nrules: [{{ id: two, key_by: ip, limit: 2/h }}]")
}

fn forward_auth_request(client: &str) -> String {
    let client = format!("X-Original-URI: /a\r\nX-Original-Method: GET\r\n{client}");
    encode_request("GET", "/v1/forward-auth", &client, "")
}

#[tokio::test]
async fn trusted_unix_proxy_names_its_clients() {
    let (_server, path) = start_on_socket(
        &two_per_hour_rules("ip: { trusted_proxies: [unix] }"),
        listen::Settings::default(),
    );
    for (client, expected) in [
        ("X-Forwarded-For: 192.0.2.1\r\n", 200),
        ("X-Forwarded-For: 203.0.113.9, 192.0.2.1\r\n", 200),
        ("X-Forwarded-For: 192.0.2.1\r\n", 429),
        ("X-Forwarded-For: 192.0.2.2\r\n", 200),
    ] {
        assert_eq!(
            request_status(&path, &forward_auth_request(client)).await,
            expected,
            "{client}"
        );
    }
    // Clients without an address share one counter. nginx sends `unix:` for such a client.
    for (client, expected) in [("", 200), ("X-Forwarded-For: unix:\r\n", 200), ("", 429)] {
        assert_eq!(
            request_status(&path, &forward_auth_request(client)).await,
            expected,
            "`{client}`"
        );
    }
}

#[tokio::test]
async fn untrusted_unix_proxy_is_rejected_and_uncharged() {
    // All IP addresses are trusted, but Unix sockets are not.
    let all_addresses = two_per_hour_rules("ip: { trusted_proxies: [0.0.0.0/0, '::/0'] }");
    let (server, path) = start_on_socket(&all_addresses, listen::Settings::default());
    let response =
        exchange_bytes(&path, forward_auth_request("X-Forwarded-For: 192.0.2.1\r\n").as_bytes())
            .await;
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    assert!(response.contains("trusted_proxies: [unix]"), "{response}");
    let facts = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    let left =
        exchange_bytes(&path, encode_request("POST", "/v1/peek", "", facts).as_bytes()).await;
    assert!(left.contains(r#""remaining":2,"#), "{left}");
    drop(server);
}

/// Unix-socket callers have no address, so the limit per address does not apply to them.
#[tokio::test]
async fn per_ip_limit_ignores_unix_sockets() {
    let one = listen::Settings { max_connections_per_ip: 1, ..listen::Settings::default() };
    let (_server, path) = start_on_socket(TEN_PER_HOUR, one);
    let _idle = UnixStream::connect(path.path()).await.unwrap();
    assert_eq!(request_status(&path, &encode_request("GET", "/livez", "", "")).await, 200);
}

/// The server's task cannot run before the stop signal here, so the connections are still
/// unaccepted at shutdown.
#[tokio::test]
async fn unaccepted_connections_are_served_at_shutdown() {
    let (server, path) = start_on_socket(TEN_PER_HOUR, listen::Settings::default());
    let mut waiting: Vec<_> = (0..3).map(|_| Blocking::connect(path.path()).unwrap()).collect();
    let request = encode_request("POST", "/v1/check", "", r#"{"facts":{}}"#);
    waiting.iter_mut().for_each(|unix| unix.write_all(request.as_bytes()).unwrap());
    server.stop.send(()).unwrap();
    server.server_task.await.unwrap();
    for unix in &mut waiting {
        let mut response = String::new();
        unix.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    }
    assert!(UnixStream::connect(path.path()).await.is_err(), "the listener is closed");
}
