//! The HTTP door on a unix socket: who is on the other side, whom they may speak for, and the stop.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::PathBuf;

use tempfile::TempDir;
use tidegate_edge::http::Settings;
use tidegate_edge::listen;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::house::{House, TEN};

/// A path for a socket, in a folder that goes away with the test.
pub(crate) struct SocketPath(TempDir);

impl SocketPath {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("door.sock")
    }
}

/// Says something over a connection of its own, and returns whatever comes until it is closed.
pub(crate) async fn say(path: &SocketPath, bytes: &[u8]) -> String {
    let mut unix = UnixStream::connect(path.path()).await.unwrap();
    unix.write_all(bytes).await.unwrap();
    let mut told = Vec::new();
    // One that is closed with bytes unread ends with an error after what was said.
    let _ = unix.read_to_end(&mut told).await;
    String::from_utf8(told).unwrap()
}

fn open(rules: &str, listen: listen::Settings) -> (House, SocketPath) {
    let path = SocketPath::new();
    let listener = UnixListener::bind(path.path()).unwrap();
    (House::open_on(listener, rules, Settings::default(), listen), path)
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

async fn status(path: &SocketPath, request: &str) -> u16 {
    let told = say(path, request.as_bytes()).await;
    told.split(' ').nth(1).unwrap_or_else(|| panic!("`{told}`")).parse().unwrap()
}

#[tokio::test]
async fn whoever_may_write_to_the_file_is_on_this_machine() {
    let (_house, path) = open(TEN, listen::Settings::default());
    let ask = |path, headers| request("POST", path, headers, r#"{"facts":{}}"#);
    assert_eq!(status(&path, &ask("/v1/check", "")).await, 200);
    for guarded in ["/v1/peek", "/v1/reset", "/v1/explain"] {
        assert_eq!(status(&path, &ask(guarded, "")).await, 200, "{guarded}");
        let page = "Origin: https://example.com\r\n";
        assert_eq!(status(&path, &ask(guarded, page)).await, 403, "{guarded} from a page");
    }
}

/// Two an hour for each client.
fn two(identity: &str) -> String {
    format!("identity: {{ {identity} }}\nrules: [{{ id: two, key_by: ip, limit: 2/h }}]")
}

fn about(client: &str) -> String {
    let client = format!("X-Original-URI: /a\r\nX-Original-Method: GET\r\n{client}");
    request("GET", "/v1/forward-auth", &client, "")
}

#[tokio::test]
async fn a_proxy_on_a_unix_socket_speaks_for_others_if_the_rules_say_so() {
    let (_house, path) = open(&two("ip: { trusted_proxies: [unix] }"), listen::Settings::default());
    for (client, expected) in [
        ("X-Forwarded-For: 192.0.2.1\r\n", 200),
        ("X-Forwarded-For: 203.0.113.9, 192.0.2.1\r\n", 200),
        ("X-Forwarded-For: 192.0.2.1\r\n", 429),
        ("X-Forwarded-For: 192.0.2.2\r\n", 200),
    ] {
        assert_eq!(status(&path, &about(client)).await, expected, "{client}");
    }
    // Without an address all are one client: `unix:` is what nginx says of clients without one.
    for (client, expected) in [("", 200), ("X-Forwarded-For: unix:\r\n", 200), ("", 429)] {
        assert_eq!(status(&path, &about(client)).await, expected, "`{client}`");
    }
}

#[tokio::test]
async fn otherwise_it_is_told_what_to_write_and_nobody_is_charged() {
    // Everybody with an address is trusted; who has none is not.
    let everybody = two("ip: { trusted_proxies: [0.0.0.0/0, '::/0'] }");
    let (house, path) = open(&everybody, listen::Settings::default());
    let told = say(&path, about("X-Forwarded-For: 192.0.2.1\r\n").as_bytes()).await;
    assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
    assert!(told.contains("trusted_proxies: [unix]"), "{told}");
    let facts = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    let left = say(&path, request("POST", "/v1/peek", "", facts).as_bytes()).await;
    assert!(left.contains(r#""remaining":2,"#), "{left}");
    drop(house);
}

/// As many as want to: there are no addresses to tell callers apart by.
#[tokio::test]
async fn the_most_connections_of_one_address_are_not_the_most_of_a_file() {
    let one = listen::Settings { max_connections_per_ip: 1, ..listen::Settings::default() };
    let (_house, path) = open(TEN, one);
    let _idle = UnixStream::connect(path.path()).await.unwrap();
    assert_eq!(status(&path, &request("GET", "/livez", "", "")).await, 200);
}

/// Nothing here lets the server run before the stop, so that it finds them waiting.
#[tokio::test]
async fn those_who_wait_to_be_accepted_at_the_stop_are_answered() {
    let (house, path) = open(TEN, listen::Settings::default());
    let mut waiting: Vec<_> = (0..3).map(|_| Blocking::connect(path.path()).unwrap()).collect();
    let ask = request("POST", "/v1/check", "", r#"{"facts":{}}"#);
    waiting.iter_mut().for_each(|unix| unix.write_all(ask.as_bytes()).unwrap());
    house.stop.send(()).unwrap();
    house.served.await.unwrap();
    for unix in &mut waiting {
        let mut told = String::new();
        unix.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK"), "{told}");
    }
    assert!(UnixStream::connect(path.path()).await.is_err(), "nobody listens any more");
}
