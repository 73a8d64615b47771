//! Request smuggling: requests that servers interpret differently never reach the upstream.

use tokio::io::AsyncWriteExt as _;

use super::UNREACHED_LIMIT;
use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::TestGateway;

const SMUGGLED_REQUEST: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends bytes on a new connection. Returns what the upstream received, and the response statuses.
async fn send_raw(
    gate: &TestGateway,
    upstream: &mut ScriptedUpstream,
    bytes: &[u8],
) -> (Vec<String>, Vec<u16>) {
    let mut caller = gate.connect().await;
    let _ = caller.tcp.write_all(bytes).await;
    let _ = caller.tcp.shutdown().await;
    let mut statuses = Vec::new();
    while let Some(response) = caller.read_response().await {
        statuses.push(response.status);
    }
    (upstream.received_requests(), statuses)
}

#[tokio::test]
async fn ambiguous_requests_never_reach_upstream() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let chunks = format!("0\r\n\r\n{SMUGGLED_REQUEST}");
    let length = SMUGGLED_REQUEST.len();
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
        ("1.1", format!("Content-Length: 0\r\nContent-Length: {length}"), SMUGGLED_REQUEST),
        ("1.1", format!("Content-Length: {length}\r\nContent-Length: {length}"), SMUGGLED_REQUEST),
        ("1.1", format!("Content-Length: 0, {length}"), SMUGGLED_REQUEST),
        ("1.1", format!("Content-Length: +{length}"), SMUGGLED_REQUEST),
        ("1.1", "Content-Length: -1".to_owned(), SMUGGLED_REQUEST),
        ("1.1", format!("X: y\r\n Content-Length: {length}"), SMUGGLED_REQUEST),
        ("1.1", "X: y\r\n\tTransfer-Encoding: chunked".to_owned(), &*chunks),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "zz\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "-1\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "0x3\r\nabc\r\n0\r\n\r\n"),
        ("1.1", "Transfer-Encoding: chunked".to_owned(), "11111111111111111\r\na\r\n0\r\n\r\n"),
    ] {
        let text = format!("POST /first HTTP/{version}\r\nHost: a\r\n{headers}\r\n\r\n{body}");
        let (seen, statuses) = send_raw(&gate, &mut upstream, text.as_bytes()).await;
        assert!(!seen.iter().any(|seen| seen.contains("smuggled")), "{headers}: {seen:?}");
        assert!(!statuses.contains(&200), "{headers}: {statuses:?}");
    }
}

#[tokio::test]
async fn ambiguous_hosts_are_rejected() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
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
            send_raw(&gate, &mut upstream, format!("{head}\r\n\r\n").as_bytes()).await;
        assert_eq!((seen, statuses), (Vec::new(), vec![400]), "{head}");
    }
    let (_, statuses) =
        send_raw(&gate, &mut upstream, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").await;
    assert_eq!(statuses, [405]);
}

/// The Pingora CVE-2025-4366 pattern: the gateway refuses a request before its body has arrived. It
/// must not parse that body as the next request.
#[tokio::test]
async fn denied_request_body_is_never_a_request() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate =
        TestGateway::start("rules: [{ id: one, key_by: global, limit: 1/h }]", upstream.address)
            .await;
    assert_eq!(gate.connect().await.request("GET", "/", b"").await.status, 200);
    assert_eq!(upstream.received_requests().len(), 1);
    let body = SMUGGLED_REQUEST.repeat(3);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, body) in [
        (format!("Content-Length: {}", body.len()), &body),
        ("Transfer-Encoding: chunked".to_owned(), &chunked),
    ] {
        for at_once in [true, false] {
            let mut caller = gate.connect().await;
            let head = format!("POST /first HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            if at_once {
                caller.send(format!("{head}{body}{SMUGGLED_REQUEST}").as_bytes()).await;
            } else {
                caller.send(head.as_bytes()).await;
                caller.tcp.readable().await.unwrap();
                let _ = caller.tcp.write_all(format!("{body}{SMUGGLED_REQUEST}").as_bytes()).await;
            }
            let mut statuses = Vec::new();
            while let Some(response) = caller.read_response().await {
                statuses.push(response.status);
                if statuses.len() == 2 {
                    break;
                }
            }
            // If the gateway drained the body, it may answer the request behind it, and must refuse
            // it.
            assert!(statuses == [429] || statuses == [429, 429], "{framing}: {statuses:?}");
        }
    }
    assert_eq!(upstream.received_requests(), Vec::<String>::new());
    let left = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    assert!(!left.is_allowed());
}
