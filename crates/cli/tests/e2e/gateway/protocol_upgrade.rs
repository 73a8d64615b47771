//! Connections that switch protocols, as WebSockets do, with raw sockets on both sides.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use tidegate_testkit::nginx::NginxServer;
use tidegate_testkit::port::ReservedPort;

use crate::support::{ServerProcess, TEST_TIMEOUT, TestFolder};

const UPGRADE_REQUEST: &str = "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n";

/// An upstream that accepts the upgrade and then echoes its input in capitals.
fn start_uppercase_upstream() -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = thread::spawn(move || {
        // The gateway's connection check at startup sends nothing.
        let mut connections = listener.incoming().flatten();
        let sends_data = |stream: &TcpStream| stream.peek(&mut [0]).is_ok_and(|length| length > 0);
        let mut stream = connections.find(sends_data).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let accepted = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                      upgrade: websocket\r\nsec-websocket-accept: y\r\n\r\nfirst";
        stream.write_all(accepted.as_bytes()).unwrap();
        let mut piece = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            stream.write_all(&piece[..length].to_ascii_uppercase()).unwrap();
        }
        stream.write_all(b"bye").unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    });
    (url, upstream)
}

#[test]
fn websocket_is_tunneled_until_both_close() {
    let (url, upstream) = start_uppercase_upstream();
    let server = ServerProcess::start_gateway(&url, &["--limit", "5/min by ip"]);
    let mut client = server.gateway_client();
    client.send(UPGRADE_REQUEST);
    let accepted = client.read_response();
    assert_eq!(accepted.status, 101);
    assert_eq!(accepted.header("upgrade"), Some("websocket"));
    assert_eq!(accepted.header("sec-websocket-accept"), Some("y"));
    assert_eq!(accepted.header("x-ratelimit-remaining"), Some("4"));
    client.send("over http no more\r\n\r\n");
    client.stream_mut().shutdown(Shutdown::Write).unwrap();
    let received = client.send_and_read_to_end(b"");
    assert_eq!(received, "firstOVER HTTP NO MORE\r\n\r\nbye");
    let head = upstream.join().unwrap();
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-key: x\r\n"), "{head}");
    let connection: Vec<_> = head.lines().filter(|line| line.starts_with("connection:")).collect();
    assert_eq!(connection, ["connection: upgrade"]);
}

#[test]
fn open_websocket_does_not_block_shutdown() {
    let (url, _upstream) = start_uppercase_upstream();
    let args = ["--limit", "5/min by ip", "--drain-timeout", "300ms"];
    let mut server = ServerProcess::start_gateway(&url, &args);
    let mut client = server.gateway_client();
    client.send(UPGRADE_REQUEST);
    assert_eq!(client.read_response().status, 101);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
}

#[test]
fn bytes_before_upgrade_are_http_requests() {
    let nginx = NginxServer::start("return 200 no;");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "1/d by ip"]);
    let hidden = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut client = server.gateway_client();
    client.send(&format!("{UPGRADE_REQUEST}{hidden}"));
    let response = client.read_response();
    assert_eq!((response.status, response.body), (200, "no".into()));
    // The hidden bytes are a second request, and counted as one.
    assert_eq!(client.read_response().status, 429);
    assert_eq!(nginx.requests().len(), 1);
}

#[test]
fn h2c_upgrade_is_never_forwarded() {
    let nginx =
        NginxServer::start("return 200 \"upgrade=$http_upgrade settings=$http_http2_settings\";");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "100/s by ip"]);
    for offered in ["h2c", "H2C", "h2c, websocket", "websocket,h2c", "x, h2c/1", "HTTP/2.0"] {
        let response = server.gateway_client().get_with(
            "/",
            &[
                ("connection", "upgrade, http2-settings"),
                ("upgrade", offered),
                ("http2-settings", "AAMAAABkAAQAAP__"),
            ],
        );
        let body = response.body.as_str().unwrap().to_lowercase();
        assert!(!body.contains("h2c") && !body.contains("http/2"), "{offered}: {body}");
        assert!(body.ends_with("settings="), "{offered}: {body}");
    }
}

#[test]
fn upgrade_fails_over_to_next_server() {
    let (url, _upstream) = start_uppercase_upstream();
    let dead = ReservedPort::reserve();
    let folder = TestFolder::new();
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"http://{}\", \"{url}\"] }}\n\
         rules: [{{ id: a, key_by: ip, limit: 100/s }}]",
        dead.address()
    );
    let server =
        ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[]);
    let mut client = server.gateway_client();
    client.send(UPGRADE_REQUEST);
    assert_eq!(client.read_response().status, 101, "{}", server.log());
}
