//! Request smuggling: requests that two servers may parse differently. A real nginx as upstream
//! must never see a request that the gateway did not count.

use tidegate_testkit::nginx::NginxServer;

use crate::support::ServerProcess;

const HIDDEN_REQUEST: &str = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn smuggled_requests_never_reach_nginx() {
    let nginx = NginxServer::start("location / { return 200 ok; }");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "100000/s by ip"]);
    let length = HIDDEN_REQUEST.len();
    for head in [
        format!("content-length: {length}\r\ntransfer-encoding: chunked"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}"),
        format!("content-length: 0\r\ncontent-length: {length}"),
        format!("content-length: {length}\r\ncontent-length: 0"),
        format!("content-length: 0, {length}"),
        "content-length: +0".to_owned(),
        "content-length : 0".to_owned(),
        "transfer-encoding: xchunked".to_owned(),
        "transfer-encoding : chunked".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: identity".to_owned(),
        "transfer-encoding:\r\n chunked".to_owned(),
        "transfer-encoding: \x0bchunked".to_owned(),
        "x: y\r\n transfer-encoding: chunked".to_owned(),
    ] {
        let text = format!("POST /seen HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n0\r\n\r\n");
        server.gateway_client().send_and_read_to_end(format!("{text}{HIDDEN_REQUEST}").as_bytes());
    }
    let old = "POST /seen HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    server.gateway_client().send_and_read_to_end(format!("{old}{HIDDEN_REQUEST}").as_bytes());
    for size in ["0x0", "-0", "0 0", "g", "", "ffffffffffffffff"] {
        let head = "POST /seen HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        server
            .gateway_client()
            .send_and_read_to_end(format!("{head}{size}\r\n\r\n{HIDDEN_REQUEST}").as_bytes());
    }
    let log = nginx.requests().join("\n");
    assert!(!log.contains("/hidden"), "{log}");
    assert_eq!(server.gateway_client().get("/seen").status, 200, "the gateway still works");
}

#[test]
fn denied_request_body_is_never_a_request() {
    let nginx = NginxServer::start("return 200 hidden-response;");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "1/d by ip"]);
    assert_eq!(server.gateway_client().get("/first").status, 200);
    for length in [HIDDEN_REQUEST.len(), 2 * HIDDEN_REQUEST.len(), 50_000_000] {
        let head = format!("POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        let mut client = server.gateway_client();
        client.send(&format!("{head}{HIDDEN_REQUEST}"));
        assert_eq!(client.read_response().status, 429);
        let received = client.send_and_read_to_end(b"");
        assert!(!received.contains("hidden-response"), "{received}");
    }
    assert_eq!(nginx.requests().len(), 1);
}
