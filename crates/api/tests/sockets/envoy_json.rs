//! Tests `POST /json` and `GET /healthcheck`, which scripts for Envoy's reference server use.

use std::net::IpAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tidegate_api::http::Settings;
use tidegate_web::BearerToken;

use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};

#[tokio::test]
async fn rate_limit_call_returns_proto_json() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    let passed = caller
        .post("/json", r#"{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#)
        .await;
    assert_eq!(passed.status, 200);
    assert_eq!(
        passed.body,
        r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":10,"unit":"HOUR","name":"ten"},"limitRemaining":9,"durationUntilReset":"360s"}]}"#
    );
    // Names as in the `.proto`, numbers as strings, and null for absent fields.
    let refused = caller
        .post(
            "/json",
            r#"{"domain":"edge","hits_addend":"10","descriptors":[{"entries":[{"key":"k","value":null}],"limit":null,"hits_addend":null,"is_negative_hits":false}]}"#,
        )
        .await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.body,
        r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":10,"unit":"HOUR","name":"ten"},"limitRemaining":9,"durationUntilReset":"360s"}],"responseHeadersToAdd":[{"key":"retry-after","value":"360"},{"key":"retry-after-ms","value":"360000"},{"key":"cache-control","value":"no-store"}]}"#
    );
    assert_eq!(server.remaining().await, 9);
}

#[tokio::test]
async fn invalid_call_returns_400_and_charges_nothing() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    let entry = r#""entries":[{"key":"k"}]"#;
    for (body, words) in [
        (String::new(), "empty"),
        ("[]".to_owned(), "object"),
        ("{".to_owned(), "not JSON"),
        ("{}".to_owned(), "domain is empty"),
        (r#"{"domain":"edge"}"#.to_owned(), "no descriptors"),
        (r#"{"domain":"edge","descriptors":[[]]}"#.to_owned(), "object"),
        (r#"{"domain":7}"#.to_owned(), "string"),
        (r#"{"domian":"edge"}"#.to_owned(), "unknown field"),
        (r#"{"domain":"a","domain":"b"}"#.to_owned(), "duplicate"),
        (r#"{"domain":"a","hitsAddend":1,"hits_addend":1}"#.to_owned(), "duplicate"),
        (r#"{"domain":"a","hitsAddend":4294967296}"#.to_owned(), "0 to 4294967295"),
        (r#"{"domain":"a","hitsAddend":-1}"#.to_owned(), "0 to 4294967295"),
        (r#"{"domain":"a","hitsAddend":"+1"}"#.to_owned(), "0 to 4294967295"),
        (r#"{"domain":"a","hitsAddend":1.5}"#.to_owned(), "whole number"),
        (
            format!(r#"{{"domain":"a","descriptors":[{{{entry},"limit":{{"unit":"WEEK"}}}}]}}"#),
            "YEAR",
        ),
        (
            format!(r#"{{"domain":"a","descriptors":[{{{entry},"limit":{{}}}}]}}"#),
            "limit.unit is 0",
        ),
        (
            format!(
                r#"{{"domain":"a","descriptors":[{}]}}"#,
                vec![format!("{{{entry}}}"); 1_025].join(",")
            ),
            "1024",
        ),
        (
            // The list is counted without being stored.
            format!(r#"{{"domain":"a","descriptors":[{}]}}"#, vec!["{}"; 1_000_000].join(",")),
            "too many descriptors; send at most 1024",
        ),
        (
            format!(
                r#"{{"domain":"a","descriptors":[{{"entries":[{}]}}]}}"#,
                vec!["{}"; 1_000_000].join(",")
            ),
            "too many descriptor entries; send at most 16384",
        ),
    ] {
        let answer = caller.post("/json", &body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.body.contains(words), "{words}: {}", answer.body);
    }
    assert_eq!(server.remaining().await, 10);
}

/// Regression: a request was rejected if one descriptor had no entries or a header was long.
#[tokio::test]
async fn empty_and_large_descriptors_are_decided() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    let path = "/a".repeat(30_000);
    let long = format!(r#"{{"entries":[{{"key":"path","value":"{path}"}}]}}"#);
    let large = vec![long; 60].join(",");
    assert!(large.len() > 3_500_000);
    for descriptors in ["{}", r#"{"entries":[{"value":"no key"}]}"#, &large] {
        let body = format!(r#"{{"domain":"edge","hitsAddend":0,"descriptors":[{descriptors}]}}"#);
        let answer = caller.post("/json", &body).await;
        let refused = body.len() > 1_000;
        assert_eq!(answer.status, if refused { 429 } else { 200 }, "{}", answer.body);
    }
    let over = format!(r#"{{"domain":"{}"}}"#, "x".repeat(4 * 1024 * 1024));
    assert_eq!(caller.post("/json", &over).await.status, 413);
}

#[tokio::test]
async fn negative_hits_require_the_token() {
    let settings =
        Settings { token: Some(BearerToken::new("secret").unwrap()), ..Settings::default() };
    let server = TestServer::start_with(TEN_PER_HOUR, settings).await;
    let call = |more: &str, token: Option<&str>| {
        let body =
            format!(r#"{{"domain":"edge","descriptors":[{{"entries":[{{"key":"k"}}]{more}}}]}}"#);
        let mut request = Request::post("/json").body(Full::new(Bytes::from(body))).unwrap();
        if let Some(token) = token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
        }
        request
    };
    let remote: IpAddr = "192.0.2.1".parse().unwrap();
    let send = async |request| {
        let response = server.api.handle_request(request, remote).await;
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    };
    assert_eq!(send(call("", None)).await, 200, "a check needs no token");
    assert_eq!(send(call(r#","isNegativeHits":true"#, None)).await, 401);
    assert_eq!(server.remaining().await, 9);
    assert_eq!(send(call(r#","isNegativeHits":true"#, Some("secret"))).await, 200);
    assert_eq!(server.remaining().await, 10);
}

#[tokio::test]
async fn healthcheck_fails_once_draining() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let mut caller = server.connect().await;
    let healthy = caller.request("GET", "/healthcheck", b"").await;
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "OK"));
    server.status.start_drain();
    assert_eq!(caller.request("GET", "/healthcheck", b"").await.status, 500);
}
