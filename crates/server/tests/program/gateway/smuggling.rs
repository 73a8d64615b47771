//! Requests that two servers could read in two ways, with a real nginx as the second reader: it never
//! sees a request that the gateway did not count.

use tidegate_testkit::nginx::Nginx;

use crate::support::Server;

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn nothing_hidden_in_a_request_reaches_nginx() {
    let nginx = Nginx::start("location / { return 200 well; }");
    let server = Server::in_front_of(&nginx.url(), &["--limit", "100000/s by ip"]);
    let length = HIDDEN.len();
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
        server.visitor().last_words(format!("{text}{HIDDEN}").as_bytes());
    }
    let old = "POST /seen HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    server.visitor().last_words(format!("{old}{HIDDEN}").as_bytes());
    for size in ["0x0", "-0", "0 0", "g", "", "ffffffffffffffff"] {
        let head = "POST /seen HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        server.visitor().last_words(format!("{head}{size}\r\n\r\n{HIDDEN}").as_bytes());
    }
    let log = nginx.requests().join("\n");
    assert!(!log.contains("/hidden"), "{log}");
    assert_eq!(server.visitor().get("/seen").status, 200, "it goes on");
}

#[test]
fn the_body_of_a_refused_request_is_no_request() {
    let nginx = Nginx::start("return 200 well;");
    let server = Server::in_front_of(&nginx.url(), &["--limit", "1/d by ip"]);
    assert_eq!(server.visitor().get("/first").status, 200);
    for length in [HIDDEN.len(), 2 * HIDDEN.len(), 50_000_000] {
        let head = format!("POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        let mut client = server.visitor();
        client.send(&format!("{head}{HIDDEN}"));
        assert_eq!(client.answer().status, 429);
        let said = client.last_words(b"");
        assert!(!said.contains("well"), "{said}");
    }
    assert_eq!(nginx.requests().len(), 1);
}
