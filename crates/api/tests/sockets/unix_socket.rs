//! The HTTP door on a unix socket: who is on the other side, whom they may speak for, and the stop.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream as Blocking;

use tidegate_api::http::Settings;
use tidegate_net::listen;
use tokio::net::{UnixListener, UnixStream};

use tidegate_fixtures::fixture::{TEN_PER_HOUR, TestHttpServer};
use tidegate_fixtures::unix_socket::{TempSocketPath, exchange_bytes};

fn start_on_socket(rules: &str, listen: listen::Settings) -> (TestHttpServer, TempSocketPath) {
    let path = TempSocketPath::new();
    let listener = UnixListener::bind(path.path()).unwrap();
    (TestHttpServer::start_on_listener(listener, rules, Settings::default(), listen), path)
}

fn encode_request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

async fn request_status(path: &TempSocketPath, request: &str) -> u16 {
    let told = exchange_bytes(path, request.as_bytes()).await;
    told.split(' ').nth(1).unwrap_or_else(|| panic!("`{told}`")).parse().unwrap()
}

#[tokio::test]
async fn unix_socket_peer_counts_as_local() {
    let (_house, path) = start_on_socket(TEN_PER_HOUR, listen::Settings::default());
    let ask = |path, headers| encode_request("POST", path, headers, r#"{"facts":{}}"#);
    assert_eq!(request_status(&path, &ask("/v1/check", "")).await, 200);
    for guarded in ["/v1/peek", "/v1/reset", "/v1/explain"] {
        assert_eq!(request_status(&path, &ask(guarded, "")).await, 200, "{guarded}");
        let page = "Origin: https://example.com\r\n";
        assert_eq!(request_status(&path, &ask(guarded, page)).await, 403, "{guarded} from a page");
    }
}

/// Two an hour for each client.
fn two_per_hour_rules(identity: &str) -> String {
    format!("identity: {{ {identity} }}\nrules: [{{ id: two, key_by: ip, limit: 2/h }}]")
}

fn forward_auth_request(client: &str) -> String {
    let client = format!("X-Original-URI: /a\r\nX-Original-Method: GET\r\n{client}");
    encode_request("GET", "/v1/forward-auth", &client, "")
}

#[tokio::test]
async fn trusted_unix_proxy_names_its_clients() {
    let (_house, path) = start_on_socket(
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
    // Without an address all are one client: `unix:` is what nginx says of clients without one.
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
    // Everybody with an address is trusted; who has none is not.
    let everybody = two_per_hour_rules("ip: { trusted_proxies: [0.0.0.0/0, '::/0'] }");
    let (house, path) = start_on_socket(&everybody, listen::Settings::default());
    let told =
        exchange_bytes(&path, forward_auth_request("X-Forwarded-For: 192.0.2.1\r\n").as_bytes())
            .await;
    assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
    assert!(told.contains("trusted_proxies: [unix]"), "{told}");
    let facts = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    let left =
        exchange_bytes(&path, encode_request("POST", "/v1/peek", "", facts).as_bytes()).await;
    assert!(left.contains(r#""remaining":2,"#), "{left}");
    drop(house);
}

/// As many as want to: there are no addresses to tell callers apart by.
#[tokio::test]
async fn per_ip_limit_ignores_unix_sockets() {
    let one = listen::Settings { max_connections_per_ip: 1, ..listen::Settings::default() };
    let (_house, path) = start_on_socket(TEN_PER_HOUR, one);
    let _idle = UnixStream::connect(path.path()).await.unwrap();
    assert_eq!(request_status(&path, &encode_request("GET", "/livez", "", "")).await, 200);
}

/// Nothing here lets the server run before the stop, so that it finds them waiting.
#[tokio::test]
async fn unaccepted_connections_are_served_at_shutdown() {
    let (house, path) = start_on_socket(TEN_PER_HOUR, listen::Settings::default());
    let mut waiting: Vec<_> = (0..3).map(|_| Blocking::connect(path.path()).unwrap()).collect();
    let ask = encode_request("POST", "/v1/check", "", r#"{"facts":{}}"#);
    waiting.iter_mut().for_each(|unix| unix.write_all(ask.as_bytes()).unwrap());
    house.stop.send(()).unwrap();
    house.server_task.await.unwrap();
    for unix in &mut waiting {
        let mut told = String::new();
        unix.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK"), "{told}");
    }
    assert!(UnixStream::connect(path.path()).await.is_err(), "nobody listens any more");
}
