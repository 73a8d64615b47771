//! Connections that change their protocol, as WebSockets do: raw sockets on both sides.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use tidegate_testkit::nginx::Nginx;
use tidegate_testkit::port::Port;

use crate::support::{DEADLINE, Folder, Server};

const ASK: &str = "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n";

/// A server that agrees, and then answers each piece with the same in capitals.
fn shouting() -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let running = thread::spawn(move || {
        // The gateway connects once at the start to see whether it can, and sends nothing.
        let mut connections = listener.incoming().flatten();
        let speaks = |stream: &TcpStream| stream.peek(&mut [0]).is_ok_and(|length| length > 0);
        let mut stream = connections.find(speaks).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                      upgrade: websocket\r\nsec-websocket-accept: y\r\n\r\nfirst";
        stream.write_all(agreed.as_bytes()).unwrap();
        let mut piece = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            stream.write_all(&piece[..length].to_ascii_uppercase()).unwrap();
        }
        stream.write_all(b"bye").unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    });
    (url, running)
}

#[test]
fn a_socket_is_carried_both_ways_until_both_sides_close() {
    let (url, upstream) = shouting();
    let server = Server::in_front_of(&url, &["--limit", "5/min by ip"]);
    let mut client = server.visitor();
    client.send(ASK);
    let agreed = client.answer();
    assert_eq!(agreed.status, 101);
    assert_eq!(agreed.header("upgrade"), Some("websocket"));
    assert_eq!(agreed.header("sec-websocket-accept"), Some("y"));
    assert_eq!(agreed.header("x-ratelimit-remaining"), Some("4"));
    client.send("over http no more\r\n\r\n");
    client.raw().shutdown(Shutdown::Write).unwrap();
    let said = client.last_words(b"");
    assert_eq!(said, "firstOVER HTTP NO MORE\r\n\r\nbye");
    let head = upstream.join().unwrap();
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-key: x\r\n"), "{head}");
    let connection: Vec<_> = head.lines().filter(|line| line.starts_with("connection:")).collect();
    assert_eq!(connection, ["connection: upgrade"]);
}

#[test]
fn an_open_socket_does_not_keep_the_process_for_ever() {
    let (url, _upstream) = shouting();
    let args = ["--limit", "5/min by ip", "--drain-timeout", "300ms"];
    let mut server = Server::in_front_of(&url, &args);
    let mut client = server.visitor();
    client.send(ASK);
    assert_eq!(client.answer().status, 101);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

#[test]
fn before_the_upstream_agrees_nothing_but_http_passes() {
    let nginx = Nginx::start("return 200 no;");
    let server = Server::in_front_of(&nginx.url(), &["--limit", "1/d by ip"]);
    let hidden = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut client = server.visitor();
    client.send(&format!("{ASK}{hidden}"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.body), (200, "no".into()));
    // It is a second request, and counted as one.
    assert_eq!(client.answer().status, 429);
    assert_eq!(nginx.requests().len(), 1);
}

#[test]
fn http2_in_plain_text_is_not_offered_on_in_any_spelling() {
    let nginx = Nginx::start("return 200 \"upgrade=$http_upgrade settings=$http_http2_settings\";");
    let server = Server::in_front_of(&nginx.url(), &["--limit", "100/s by ip"]);
    for offered in ["h2c", "H2C", "h2c, websocket", "websocket,h2c", "x, h2c/1", "HTTP/2.0"] {
        let answer = server.visitor().get_with(
            "/",
            &[
                ("connection", "upgrade, http2-settings"),
                ("upgrade", offered),
                ("http2-settings", "AAMAAABkAAQAAP__"),
            ],
        );
        let told = answer.body.as_str().unwrap().to_lowercase();
        assert!(!told.contains("h2c") && !told.contains("http/2"), "{offered}: {told}");
        assert!(told.ends_with("settings="), "{offered}: {told}");
    }
}

#[test]
fn another_server_gets_an_upgrade_that_the_first_was_not_there_for() {
    let (url, _upstream) = shouting();
    let dead = Port::take();
    let folder = Folder::new();
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"http://{}\", \"{url}\"] }}\n\
         rules: [{{ id: a, key_by: ip, limit: 100/s }}]",
        dead.address()
    );
    let server = Server::gateway_with(&folder.write("rules.yaml", document), &[]);
    let mut client = server.visitor();
    client.send(ASK);
    assert_eq!(client.answer().status, 101, "{}", server.log());
}
