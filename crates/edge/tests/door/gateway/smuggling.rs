//! Requests that two servers could read in two ways: what reaches the upstream is never one of them.

use tokio::io::AsyncWriteExt as _;

use super::upstream::Upstream;
use super::{Gate, MANY};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends bytes on a connection of their own; what the upstream got, and the statuses that came back.
async fn tried(gate: &Gate, upstream: &mut Upstream, bytes: &[u8]) -> (Vec<String>, Vec<u16>) {
    let mut caller = gate.caller().await;
    let _ = caller.tcp.write_all(bytes).await;
    let _ = caller.tcp.shutdown().await;
    let mut statuses = Vec::new();
    while let Some(answer) = caller.answer().await {
        statuses.push(answer.status);
    }
    (upstream.seen(), statuses)
}

#[tokio::test]
async fn ambiguous_requests_do_not_reach_the_upstream() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    let chunks = format!("0\r\n\r\n{SMUGGLED}");
    let length = SMUGGLED.len();
    for (version, headers, body) in [
        ("1.1", format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"), &*chunks),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 4".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding : chunked".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: xchunked".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: chunked, identity".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: gzip, chunked".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding:\x0bchunked".to_owned(), &*chunks),
        ("1.0", "Transfer-Encoding: chunked".to_owned(), &*chunks),
        ("1.1", format!("Content-Length: 0\r\nContent-Length: {length}"), SMUGGLED),
        ("1.1", format!("Content-Length: {length}\r\nContent-Length: {length}"), SMUGGLED),
        ("1.1", format!("Content-Length: 0, {length}"), SMUGGLED),
        ("1.1", format!("Content-Length: +{length}"), SMUGGLED),
        ("1.1", "Content-Length: -1".to_owned(), SMUGGLED),
        ("1.1", format!("X: y\r\n Content-Length: {length}"), SMUGGLED),
        ("1.1", "X: y\r\n\tTransfer-Encoding: chunked".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "zz\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "-1\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "0x3\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "11111111111111111\r\na\r\n0\r\n\r\n"),
    ] {
        let text = format!("POST /first HTTP/{version}\r\nHost: a\r\n{headers}\r\n\r\n{body}");
        let (seen, statuses) = tried(&gate, &mut upstream, text.as_bytes()).await;
        assert!(!seen.iter().any(|seen| seen.contains("smuggled")), "{headers}: {seen:?}");
        assert!(!statuses.contains(&200), "{headers}: {statuses:?}");
    }
}

#[tokio::test]
async fn hosts_that_servers_disagree_on_are_refused() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open(MANY, &upstream).await;
    for head in [
        "GET / HTTP/1.1",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a",
        "GET http://b/ HTTP/1.1\r\nHost: a",
        "GET / HTTP/1.1\r\nHost: a@b",
        "GET / HTTP/1.1\r\nHost: a/b",
        "GET /a%2f..%2fb HTTP/1.1\r\nHost: a",
        "GET /a%00 HTTP/1.1\r\nHost: a",
        "GET /..%5c HTTP/1.1\r\nHost: a",
    ] {
        let (seen, statuses) =
            tried(&gate, &mut upstream, format!("{head}\r\n\r\n").as_bytes()).await;
        assert_eq!((seen, statuses), (Vec::new(), vec![400]), "{head}");
    }
    let (_, statuses) =
        tried(&gate, &mut upstream, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").await;
    assert_eq!(statuses, [405]);
}

/// The Pingora CVE-2025-4366 pattern: a refusal is sent while the body is still to come, and the body
/// must not be taken for the next request.
#[tokio::test]
async fn the_body_of_a_refused_request_is_never_a_request() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::open("rules: [{ id: one, key_by: global, limit: 1/h }]", &upstream).await;
    assert_eq!(gate.caller().await.ask("GET", "/", b"").await.status, 200);
    assert_eq!(upstream.seen().len(), 1);
    let body = SMUGGLED.repeat(3);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, body) in [
        (format!("Content-Length: {}", body.len()), &body),
        ("Transfer-Encoding: chunked".to_owned(), &chunked),
    ] {
        for at_once in [true, false] {
            let mut caller = gate.caller().await;
            let head = format!("POST /first HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            if at_once {
                caller.send(format!("{head}{body}{SMUGGLED}").as_bytes()).await;
            } else {
                caller.send(head.as_bytes()).await;
                caller.tcp.readable().await.unwrap();
                let _ = caller.tcp.write_all(format!("{body}{SMUGGLED}").as_bytes()).await;
            }
            let mut statuses = Vec::new();
            while let Some(answer) = caller.answer().await {
                statuses.push(answer.status);
                if statuses.len() == 2 {
                    break;
                }
            }
            // The request after the body may be answered if the body was drained, and is refused then.
            assert!(statuses == [429] || statuses == [429, 429], "{framing}: {statuses:?}");
        }
    }
    assert_eq!(upstream.seen(), Vec::<String>::new());
    let left = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    assert!(!left.is_allowed());
}
