//! HTTP/1.1 attacks; an honest client is still served.

use std::io::{Read as _, Write as _};
use std::sync::Barrier;

use crate::support::recording_upstream::reply_ok;
use crate::support::{
    HttpTestClient, RecordingUpstream, ServerProcess, TEST_TIMEOUT, disable_default_ports,
};

/// More than the low file descriptor limit of one test.
const HALF_OPEN_CONNECTIONS: usize = 300;

fn assert_honest_client_served(server: &ServerProcess) {
    assert_eq!(server.gateway_client().get("/honest").status, 200, "{}", server.log());
}

#[test]
fn unfinished_request_heads_are_closed() {
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway(&upstream.url(), &["--limit", "1000/s by ip"]);
    let beginnings =
        ["", "G", "GET / HTTP/1.1\r\nhost: a\r\nx: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    let mut slow: Vec<HttpTestClient> = (0..HALF_OPEN_CONNECTIONS)
        .map(|n| {
            let mut client = server.gateway_client();
            client.send(beginnings[n % beginnings.len()]);
            client
        })
        .collect();
    assert_honest_client_served(&server);
    // Connections that send a byte now and then are closed as well.
    for client in &mut slow {
        let _ = client.stream_mut().write_all(b"y");
    }
    assert_honest_client_served(&server);
    for client in &mut slow {
        crate::support::wait_for("a half-open connection to be closed", || {
            is_closed(client).then_some(())
        });
    }
    assert_honest_client_served(&server);
}

/// Whether the server has closed the connection. Discards what it sent before.
fn is_closed(client: &mut HttpTestClient) -> bool {
    client.stream_mut().set_nonblocking(true).unwrap();
    let mut bytes = [0; 1024];
    let closed = loop {
        match client.stream_mut().read(&mut bytes) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break false,
            Err(_) => break true,
        }
    };
    client.stream_mut().set_nonblocking(false).unwrap();
    closed
}

/// Regression test: each request needs a second descriptor for the upstream, and half-open
/// connections left none.
#[test]
fn connection_flood_leaves_descriptors_for_upstream() {
    const HONEST_CLIENTS: usize = 20;
    let all_arrived = Barrier::new(HONEST_CLIENTS);
    let upstream = RecordingUpstream::start_replying(move |_, stream| {
        all_arrived.wait();
        reply_ok(stream, "ok");
    });
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tidegate");
    command.args(["-c", &format!("ulimit -n 200; exec {program} \"$@\""), "sh"]);
    command.args(["serve", "--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.url(), "--limit", "1000/s by ip"]);
    disable_default_ports(&mut command);
    let server = ServerProcess::spawn(command);
    server.wait_for_log("few file descriptors");
    let mut clients: Vec<HttpTestClient> =
        (0..HONEST_CLIENTS).map(|_| server.gateway_client()).collect();
    let held: Vec<HttpTestClient> =
        (0..HALF_OPEN_CONNECTIONS).map(|_| server.gateway_client()).collect();
    // Each request waits at the upstream for all others, so that none reuses a connection.
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.read_response().status, 200, "{}", server.log());
    }
    assert!(!server.log().contains("could not accept"), "{}", server.log());
    drop(held);
}

#[test]
fn oversized_request_parts_are_rejected() {
    let upstream = RecordingUpstream::start();
    let args = ["--limit", "1000/s by ip", "--max-body", "1KiB"];
    let server = ServerProcess::start_gateway(&upstream.url(), &args);
    let status = |request: String| {
        let mut client = server.gateway_client();
        let _ = client.stream_mut().write_all(request.as_bytes());
        client.try_read_response().map_or(0, |response| response.status)
    };
    let long = |length: usize| "a".repeat(length);
    let get = |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\nhost: a\r\n{more}\r\n");
    let post = |more: &str| format!("POST / HTTP/1.1\r\nhost: a\r\n{more}");
    assert_eq!(status(get(&format!("/{}", long(7_000)), "")), 200);
    assert_eq!(status(get(&format!("/{}", long(9_000)), "")), 414);
    assert_eq!(status(get("/", &format!("x: {}\r\n", long(20_000)))), 200);
    assert_eq!(status(get("/", &format!("x: {}\r\n", long(40_000)))), 431);
    assert_eq!(status(get("/", &"x: y\r\n".repeat(90))), 200);
    assert_eq!(status(get("/", &"x: y\r\n".repeat(101))), 431);
    assert_eq!(status(post(&format!("content-length: 1024\r\n\r\n{}", long(1024)))), 200);
    assert_eq!(status(post(&format!("content-length: 1025\r\n\r\n{}", long(1025)))), 413);
    assert_eq!(status(post("content-length: 99999999999999999999\r\n\r\n")), 400);
    assert_eq!(upstream.received_requests().len(), 4);
    assert_honest_client_served(&server);
}

#[test]
fn slow_upload_does_not_hit_response_timeout() {
    let upstream = RecordingUpstream::start();
    let folder = crate::support::TestFolder::new();
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"{}\"], response_timeout: 300ms }}\n\
         rules: [{{ id: a, key_by: ip, limit: 1000/s }}]",
        upstream.url()
    );
    let server =
        ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[]);
    let mut client = server.gateway_client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n");
    for _ in 0..8 {
        // The delay between the client's bytes is what this test is about.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let _ = client.stream_mut().write_all(b"x");
    }
    client.stream_mut().set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    assert_eq!(client.read_response().status, 200, "{}", server.log());
}
