//! Shutdown of a gateway: it completes requests in flight and accepts no new ones.

use std::net::TcpStream;

use crate::support::recording_upstream::{reply_gate, reply_ok};
use crate::support::{RecordingUpstream, ServerProcess};

#[test]
fn in_flight_request_completes_while_unready() {
    let (open, closed) = reply_gate();
    let upstream = RecordingUpstream::start_replying(move |_, stream| {
        let _ = closed.lock().unwrap().recv();
        reply_ok(stream, "late");
    });
    let mut server = ServerProcess::start_gateway(&upstream.url(), &["--limit", "5/min by ip"]);
    let (mut client, mut probe) = (server.gateway_client(), server.client());
    assert_eq!(probe.get("/readyz").status, 200);
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.next_request();
    server.signal("TERM");
    server.wait_for_log("stopping");
    let draining = probe.get("/readyz");
    let status = (draining.status, &draining.body["status"]);
    assert_eq!(status, (503, &"draining".into()), "{draining:?}");
    crate::support::wait_for("the gateway to stop accepting", || {
        TcpStream::connect(&server.gateway).err()
    });
    open.send(()).unwrap();
    let response = client.read_response();
    assert_eq!((response.status, response.body), (200, "late".into()));
    assert!(response.head.contains("connection: close"), "{}", response.head);
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
}

#[test]
fn second_signal_does_not_wait_for_upstream() {
    let (_open, closed) = reply_gate();
    let upstream = RecordingUpstream::start_replying(move |_, _| {
        let _ = closed.lock().unwrap().recv();
    });
    let mut server = ServerProcess::start_gateway(&upstream.url(), &["--limit", "5/min by ip"]);
    let mut client = server.gateway_client();
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.next_request();
    server.signal("TERM");
    server.wait_for_log("stopping");
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(3));
    assert!(client.try_read_response().is_err());
}

#[test]
fn drain_timeout_bounds_shutdown() {
    let (_open, closed) = reply_gate();
    let upstream = RecordingUpstream::start_replying(move |_, _| {
        let _ = closed.lock().unwrap().recv();
    });
    let args = ["--limit", "5/min by ip", "--drain-timeout", "300ms"];
    let mut server = ServerProcess::start_gateway(&upstream.url(), &args);
    let mut client = server.gateway_client();
    client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.next_request();
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0));
    server.wait_for_log("drain timed out; closing the remaining connections");
}
