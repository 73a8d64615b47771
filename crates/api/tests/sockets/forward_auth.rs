//! Tests forward-auth: which proxies are trusted, the dialects of the proxies, and the responses.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};

use tidegate_fixtures::server::TestServer;

/// Two requests per hour for each client and endpoint, and three for each API key. The proxy is
/// 10.0.0.1.
const RULES: &str = "
identity:
  ip: { trusted_proxies: [10.0.0.1/32] }
  api_key: { header: x-api-key }
rules:
  - { id: each, key_by: \"ip:method:path\", limit: 2/h }
  - { id: keys, match: { api_key: '*' }, key_by: api_key, limit: 3/h }
";

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

type HeaderPairs<'a> = &'a [(&'a str, &'a str)];

async fn send_request(
    server: &TestServer,
    (method, target): (&str, &str),
    peer: IpAddr,
    headers: HeaderPairs<'_>,
) -> Response<Full<Bytes>> {
    let request = Request::builder().method(method).uri(target);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.api.handle_request(request.body(Empty::new()).unwrap(), peer).await
}

/// Sends a forward-auth request from the proxy; returns the status and the remaining quota.
async fn check_forwarded(server: &TestServer, headers: HeaderPairs<'_>) -> (u16, String) {
    let answer = send_request(server, ("GET", "/v1/forward-auth"), PROXY, headers).await;
    let left = answer.headers().get("x-ratelimit-remaining");
    (answer.status().as_u16(), left.map_or("-", |left| left.to_str().unwrap()).to_owned())
}

#[tokio::test]
async fn all_proxy_dialects_share_one_counter() {
    let server = TestServer::start(RULES).await;
    let client = ("x-forwarded-for", "203.0.113.7");
    let traefik = [client, ("x-forwarded-method", "POST"), ("x-forwarded-uri", "/a/b?q=1")];
    let nginx = [client, ("x-original-method", "POST"), ("x-original-uri", "/a/./b?q=2")];
    let ingress = [client, ("x-original-method", "POST"), ("x-original-url", "https://h/a//b?q=3")];
    assert_eq!(check_forwarded(&server, &traefik).await, (200, "1".to_owned()));
    assert_eq!(check_forwarded(&server, &nginx).await, (200, "0".to_owned()));
    assert_eq!(check_forwarded(&server, &ingress).await, (429, "0".to_owned()));
    // Envoy's `path_prefix` style: original path appended, original method kept.
    let envoy = send_request(&server, ("POST", "/v1/forward-auth/a/b?q=4"), PROXY, &[client]).await;
    assert_eq!(envoy.status(), 429);
    let other = [client, ("x-forwarded-method", "POST"), ("x-forwarded-uri", "/other")];
    assert_eq!(check_forwarded(&server, &other).await, (200, "1".to_owned()));
    let other = [client, ("x-forwarded-method", "GET"), ("x-forwarded-uri", "/a/b")];
    assert_eq!(check_forwarded(&server, &other).await, (200, "1".to_owned()));
    let other = [("x-forwarded-for", "203.0.113.8"), traefik[1], traefik[2]];
    assert_eq!(check_forwarded(&server, &other).await, (200, "1".to_owned()));
}

#[tokio::test]
async fn head_counts_as_get_by_default() {
    let server = TestServer::start(RULES).await;
    for (method, status) in [("HEAD", 200), ("GET", 200), ("HEAD", 429)] {
        let answer = send_request(&server, (method, "/v1/forward-auth/x"), PROXY, &[]).await;
        assert_eq!(answer.status(), status, "{method}");
    }
}

#[tokio::test]
async fn client_headers_identify_the_client() {
    let server = TestServer::start(RULES).await;
    for (path, status) in [("/1", 200), ("/2", 200), ("/3", 200), ("/4", 429)] {
        let headers =
            [("x-forwarded-uri", path), ("x-api-key", "k"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(check_forwarded(&server, &headers).await.0, status, "{path}");
    }
    let twice = [("x-forwarded-uri", "/5"), ("x-api-key", "k"), ("x-api-key", "l")];
    assert_eq!(check_forwarded(&server, &twice).await.0, 400);
}

#[tokio::test]
async fn untrusted_peer_cannot_speak_for_clients() {
    let server = TestServer::start(RULES).await;
    let stranger = IpAddr::from([192, 0, 2, 66]);
    let send = |headers: &'static [(&'static str, &'static str)]| {
        send_request(&server, ("GET", "/v1/forward-auth"), stranger, headers)
    };
    for name in [
        "x-forwarded-uri",
        "x-forwarded-method",
        "x-original-uri",
        "x-original-url",
        "x-original-method",
    ] {
        let headers: &'static [(&str, &str)] = vec![(name, "/x")].leak();
        let answer = send(headers).await;
        assert_eq!(answer.status(), 403, "{name}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("trusted_proxies"), "{body:?}");
    }
    // The peer may send a request for itself, but a forged address has no effect.
    for (claimed, status) in [("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.3", 429)] {
        let headers: &'static [(&str, &str)] = vec![("x-forwarded-for", claimed)].leak();
        assert_eq!(send(headers).await.status(), status, "{claimed}");
    }
}

/// nginx forwards the client's headers. If one header took precedence over another, a client could
/// be charged for a different path than the one it requests.
#[tokio::test]
async fn conflicting_headers_are_rejected_and_uncharged() {
    let server = TestServer::start(RULES).await;
    for forged in [
        &[("x-forwarded-uri", "/cheap")][..],
        &[("x-original-url", "http://h/cheap")],
        &[("x-original-uri", "/cheap")],
        &[("x-forwarded-method", "GET")],
        &[("x-original-uri", "nonsense")],
        &[("x-original-uri", "/%zz")],
        &[("x-original-method", "NO SPACE")],
    ] {
        let mut headers = vec![("x-original-uri", "/dear"), ("x-original-method", "POST")];
        headers.extend(forged);
        assert_eq!(check_forwarded(&server, &headers).await.0, 400, "{forged:?}");
    }
    let honest = [("x-original-uri", "/dear"), ("x-original-method", "POST")];
    assert_eq!(check_forwarded(&server, &honest).await, (200, "1".to_owned()));
    let agreed = [honest[0], honest[1], ("x-forwarded-uri", "/dear")];
    assert_eq!(check_forwarded(&server, &agreed).await, (200, "0".to_owned()));
}

#[tokio::test]
async fn response_carries_decision_and_no_store() {
    let server = TestServer::start(RULES).await;
    let about = [("x-forwarded-uri", "/x")];
    let header = |answer: &Response<Full<Bytes>>, name: &str| {
        answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    for (target, status, decision) in [
        ("/v1/forward-auth", 200, "allow"),
        ("/v1/forward-auth?deny=403", 200, "allow"),
        ("/v1/forward-auth?deny=403", 403, "deny"),
        ("/v1/forward-auth?deny=429", 429, "deny"),
    ] {
        let answer = send_request(&server, ("GET", target), PROXY, &about).await;
        assert_eq!(answer.status(), status, "{target}");
        assert_eq!(header(&answer, "x-ratelimit-decision").as_deref(), Some(decision));
        assert_eq!(header(&answer, "cache-control").as_deref(), Some("no-store"));
        assert_eq!(header(&answer, "ratelimit-policy").as_deref(), Some(r#""each";q=2;w=3600"#));
        assert_eq!(header(&answer, "retry-after").is_some(), decision == "deny");
    }
    for target in ["/v1/forward-auth?deny=500", "/v1/forward-auth?deny=403&deny=429"] {
        assert_eq!(send_request(&server, ("GET", target), PROXY, &about).await.status(), 400);
    }
}

/// The gateway refuses gRPC calls with HTTP status 200 and a gRPC status. A proxy would let such a
/// response pass.
#[tokio::test]
async fn grpc_request_is_denied_with_http_status() {
    let server = TestServer::start(RULES).await;
    let headers = [("x-forwarded-uri", "/pkg.Service/Call"), ("content-type", "application/grpc")];
    for status in [200, 200, 429] {
        let answer = send_request(&server, ("GET", "/v1/forward-auth"), PROXY, &headers).await;
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers().get("grpc-status"), None);
    }
}

#[tokio::test]
async fn queueing_rule_denies_instead_of_waiting() {
    let queue = "{ requests: 10, window: 1s, burst: 5, algorithm: leaky_bucket, queue: true }";
    let server =
        TestServer::start(&format!("rules: [{{ id: q, key_by: ip, limit: {queue} }}]")).await;
    let send = || send_request(&server, ("GET", "/v1/forward-auth"), PROXY, &[]);
    assert_eq!(send().await.status(), 200);
    for _ in 0..3 {
        let refused = send().await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after-ms"]),
            (429, &"100".parse().unwrap())
        );
    }
    server.clock.advance(tidegate_core::time::Micros::from_millis(100));
    assert_eq!(send().await.status(), 200);
}

/// A proxy that forwards `Content-Length` without the body would otherwise wait forever for its
/// response.
#[tokio::test]
async fn content_length_without_body_closes_connection() {
    let server = TestServer::start("rules: []").await;
    let mut caller = server.connect().await;
    caller.send(b"GET /v1/forward-auth HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n").await;
    let answer = caller.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}
