//! Tests guarded endpoints with remote callers. The tests pass the caller's address to the API
//! directly, because a connection to a local socket is always local.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate_api::http::Settings;
use tidegate_web::BearerToken;

use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};

const GUARDED_PATHS: [&str; 5] =
    ["/v1/peek", "/v1/refund", "/v1/counters", "/v1/reset", "/v1/explain"];

async fn send_request(
    server: &TestServer,
    path: &str,
    authorization: Option<&str>,
) -> Response<Full<Bytes>> {
    let request = Request::post(path);
    let request = match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    };
    let body = Full::new(Bytes::from_static(br#"{"facts":{}}"#));
    server.api.handle_request(request.body(body).unwrap(), IpAddr::from([192, 0, 2, 1])).await
}

#[tokio::test]
async fn guarded_paths_without_token_explain_setup() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    for path in GUARDED_PATHS {
        let answer = send_request(&server, path, Some("Bearer x")).await;
        assert_eq!(answer.status(), 403, "{path}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("--admin-token-file"), "{body:?}");
    }
    assert_eq!(send_request(&server, "/v1/check", None).await.status(), 200);
}

#[tokio::test]
async fn guarded_paths_require_the_token() {
    let settings = Settings { token: BearerToken::new("secret").ok(), ..Settings::default() };
    let server = TestServer::start_with(TEN_PER_HOUR, settings).await;
    for path in GUARDED_PATHS {
        let rejected = send_request(&server, path, None).await;
        assert_eq!(rejected.status(), 401, "{path}");
        assert_eq!(rejected.headers()["www-authenticate"], "Bearer");
        assert_eq!(
            send_request(&server, path, Some("Bearer Secret")).await.status(),
            401,
            "{path}"
        );
        assert_eq!(
            send_request(&server, path, Some("Bearer secret")).await.status(),
            200,
            "{path}"
        );
    }
}

#[tokio::test]
async fn cross_origin_request_cannot_consume_a_limit() {
    let settings = Settings { token: BearerToken::new("secret").ok(), ..Settings::default() };
    let server = TestServer::start_with(TEN_PER_HOUR, settings).await;
    let call = r#"{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"b"}]}]}"#;
    for (path, body) in [
        ("/v1/check", r#"{"facts":{}}"#),
        ("/v1/checks", r#"{"checks":[{"facts":{}}]}"#),
        ("/json", call),
    ] {
        for (peer, authorization, status) in [
            ([127, 0, 0, 1], "Bearer wrong", 403),
            ([192, 0, 2, 1], "Bearer wrong", 403),
            ([192, 0, 2, 1], "Bearer secret", 200),
        ] {
            let request = Request::post(path).header("origin", "https://evil.example");
            let request = request.header("authorization", authorization);
            let request = request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
            let answer = server.api.handle_request(request, IpAddr::from(peer)).await;
            assert_eq!(answer.status(), status, "{path} {authorization}");
        }
    }
    assert_eq!(server.remaining().await, 7, "each path was charged once");
}

#[tokio::test]
async fn cross_origin_request_cannot_reset_counters() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    assert_eq!(caller.post("/v1/check", r#"{"facts":{}}"#).await.status, 200);
    let body = r#"{"facts":{}}"#;
    let head = "POST /v1/reset HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n\
                Content-Type: text/plain\r\nContent-Length: 12\r\n\r\n";
    caller.send(format!("{head}{body}").as_bytes()).await;
    assert_eq!(caller.read_response().await.unwrap().status, 403);
    assert_eq!(server.remaining().await, 9);
}
