//! What a hostile client of HTTP/1.1 may try; an honest one is served meanwhile.

use std::io::{Read as _, Write as _};
use std::sync::Barrier;

use crate::support::upstream::ok;
use crate::support::{Client, DEADLINE, Server, Upstream, without_default_ports};

/// More than there are file descriptors for where those are few.
const HALF_OPEN: usize = 300;

fn honest(server: &Server) {
    assert_eq!(server.visitor().get("/honest").status, 200, "{}", server.log());
}

#[test]
fn heads_that_never_end_are_closed_and_an_honest_client_is_served() {
    let upstream = Upstream::start();
    let server = Server::in_front_of(&upstream.url(), &["--limit", "1000/s by ip"]);
    let beginnings =
        ["", "G", "GET / HTTP/1.1\r\nhost: a\r\nx: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    let mut slow: Vec<Client> = (0..HALF_OPEN)
        .map(|n| {
            let mut client = server.visitor();
            client.send(beginnings[n % beginnings.len()]);
            client
        })
        .collect();
    honest(&server);
    // Those that still say a word now and then are closed as well.
    for client in &mut slow {
        let _ = client.raw().write_all(b"y");
    }
    honest(&server);
    for client in &mut slow {
        crate::support::wait_for("a half-open connection to be closed", || {
            ended(client).then_some(())
        });
    }
    honest(&server);
}

/// Whether the other side has closed. What it said before is of no interest.
fn ended(client: &mut Client) -> bool {
    client.raw().set_nonblocking(true).unwrap();
    let mut bytes = [0; 1024];
    let ended = loop {
        match client.raw().read(&mut bytes) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break false,
            Err(_) => break true,
        }
    };
    client.raw().set_nonblocking(false).unwrap();
    ended
}

/// Each connection takes a second descriptor to the upstream; half-open ones once left none for it.
#[test]
fn more_connections_than_files_leave_enough_for_the_upstream() {
    const HONEST: usize = 20;
    let all_there = Barrier::new(HONEST);
    let upstream = Upstream::replying(move |_, stream| {
        all_there.wait();
        ok(stream, "well");
    });
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tidegate");
    command.args(["-c", &format!("ulimit -n 200; exec {program} \"$@\""), "sh"]);
    command.args(["serve", "--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.url(), "--limit", "1000/s by ip"]);
    without_default_ports(&mut command);
    let server = Server::spawn(command);
    server.wait_log("few file descriptors");
    let mut clients: Vec<Client> = (0..HONEST).map(|_| server.visitor()).collect();
    let held: Vec<Client> = (0..HALF_OPEN).map(|_| server.visitor()).collect();
    // Each waits at the upstream for all the others, so that nobody uses another's connection.
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 200, "{}", server.log());
    }
    assert!(!server.log().contains("could not accept"), "{}", server.log());
    drop(held);
}

#[test]
fn oversized_everything_is_refused() {
    let upstream = Upstream::start();
    let args = ["--limit", "1000/s by ip", "--max-body", "1KiB"];
    let server = Server::in_front_of(&upstream.url(), &args);
    let status = |request: String| {
        let mut client = server.visitor();
        let _ = client.raw().write_all(request.as_bytes());
        client.try_answer().map_or(0, |answer| answer.status)
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
    assert_eq!(upstream.requests().len(), 4);
    honest(&server);
}

#[test]
fn a_body_that_comes_slowly_but_steadily_is_no_late_answer() {
    let upstream = Upstream::start();
    let folder = crate::support::Folder::new();
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"{}\"], response_timeout: 300ms }}\n\
         rules: [{{ id: a, key_by: ip, limit: 1000/s }}]",
        upstream.url()
    );
    let server = Server::gateway_with(&folder.write("rules.yaml", document), &[]);
    let mut client = server.visitor();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n");
    for _ in 0..8 {
        // This is the client's own pace, which is what is tried.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let _ = client.raw().write_all(b"x");
    }
    client.raw().set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(client.answer().status, 200, "{}", server.log());
}
