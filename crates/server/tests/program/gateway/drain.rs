//! The end of a gateway: what is under way is answered, nothing new is begun.

use std::net::TcpStream;

use crate::support::upstream::{gate, ok};
use crate::support::{Server, Upstream};

#[test]
fn a_request_under_way_is_answered_while_readiness_is_red() {
    let (open, closed) = gate();
    let upstream = Upstream::replying(move |_, stream| {
        let _ = closed.lock().unwrap().recv();
        ok(stream, "late");
    });
    let mut server = Server::in_front_of(&upstream.url(), &["--limit", "5/min by ip"]);
    let (mut client, mut probe) = (server.visitor(), server.client());
    assert_eq!(probe.get("/readyz").status, 200);
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.request();
    server.signal("TERM");
    server.wait_log("stopping");
    let red = probe.get("/readyz");
    assert_eq!((red.status, &red.body["status"]), (503, &"draining".into()), "{red:?}");
    crate::support::wait_for("the gateway to accept nobody", || {
        TcpStream::connect(&server.gateway).err()
    });
    open.send(()).unwrap();
    let answer = client.answer();
    assert_eq!((answer.status, answer.body), (200, "late".into()));
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

#[test]
fn a_second_signal_does_not_wait_for_the_upstream() {
    let (_open, closed) = gate();
    let upstream = Upstream::replying(move |_, _| {
        let _ = closed.lock().unwrap().recv();
    });
    let mut server = Server::in_front_of(&upstream.url(), &["--limit", "5/min by ip"]);
    let mut client = server.visitor();
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.request();
    server.signal("TERM");
    server.wait_log("stopping");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(3));
    assert!(client.try_answer().is_err());
}

#[test]
fn a_drain_ends_in_time_whatever_the_upstream_does() {
    let (_open, closed) = gate();
    let upstream = Upstream::replying(move |_, _| {
        let _ = closed.lock().unwrap().recv();
    });
    let args = ["--limit", "5/min by ip", "--drain-timeout", "300ms"];
    let mut server = Server::in_front_of(&upstream.url(), &args);
    let mut client = server.visitor();
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.request();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    server.wait_log("requests cut off at the end of the drain");
}
