//! Tests valid and invalid calls to the rate limit service. Invalid calls charge nothing.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Either, Full};
use tidegate_api::grpc;
use tidegate_limiter::Limiter;
use tidegate_net::listen;
use tidegate_rules::Facts;

use super::{ENVOY_CALL, PendingBody, SHOULD_RATE_LIMIT, TestGrpcServer, encode_frame};
use tidegate_fixtures::faulty_store::FaultyStore;
use tidegate_fixtures::raw_client::RawClient;
use tidegate_fixtures::server::ManualMemoryStore;

const TEN_PER_MINUTE: &str = "rules: [{ id: per-ip, key_by: ip, limit: 10/m using fixed_window }]";

/// Returns the remaining quota of the counter that [`ENVOY_CALL`] charges.
async fn remaining(limiter: &Limiter<ManualMemoryStore>) -> u64 {
    let facts: Facts<'_> = [("ip", "192.0.2.7")].into_iter().collect();
    let decision = limiter.peek(&facts, None, 1).await;
    decision.tightest().unwrap().1.numbers.unwrap().remaining
}

#[tokio::test]
async fn envoy_call_matches_expected_bytes() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    for _ in 0..10 {
        let reply = client
            .call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", "20S")])
            .await;
        assert_eq!((reply.status, reply.code, reply.message.as_str()), (200, Some(0), ""));
        assert_eq!(reply.body[5..7], [8, 1], "OK");
    }
    let reply = client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[]).await;
    assert_eq!((reply.status, reply.code), (200, Some(0)), "a refusal is not an error");
    let status = b"\x08\x02\x12\x14\x08\x02\x12\x0c\x08\x0a\x10\x02\x1a\x06per-ip\x22\x02\x08\x25";
    let headers =
        b"\x1a\x11\x0a\x0bretry-after\x12\x0237\x1a\x17\x0a\x0eretry-after-ms\x12\x0537000\
                    \x1a\x19\x0a\x0dcache-control\x12\x08no-store";
    assert_eq!(reply.body, encode_frame(&[&status[..], headers].concat()));
}

#[tokio::test]
async fn invalid_calls_return_status_and_charge_nothing() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    let max_bytes = 4 * 1024 * 1024;
    let large = encode_frame(
        &[&[0x0a, 0x80, 0x80, 0x80, 0x02], &vec![b'x'; max_bytes][..], ENVOY_CALL].concat(),
    );
    let second = [encode_frame(ENVOY_CALL), encode_frame(ENVOY_CALL)].concat();
    let descriptors =
        |count: usize| [&b"\x0a\x04edge"[..], &ENVOY_CALL[6..].repeat(count)].concat();
    for (body, code, words) in [
        (encode_frame(b""), 3, "domain is empty"),
        (encode_frame(b"\x0a\x04edge"), 3, "no descriptors"),
        (encode_frame(&descriptors(1_025)), 3, "too many descriptors; send at most 1024"),
        (encode_frame(b"\x0a\x09edge"), 3, "not a valid RateLimitRequest"),
        (encode_frame(b"not protobuf"), 3, "not a valid RateLimitRequest"),
        (large, 8, "longer than 4194304 bytes"),
        ([&[0, 0xff, 0xff, 0xff, 0xff], ENVOY_CALL].concat(), 8, "longer than 4194304 bytes"),
        ([&[1, 0, 0, 0, 37], ENVOY_CALL].concat(), 12, "identity"),
        (second, 12, "exactly one message"),
        (vec![], 12, "exactly one message"),
        (encode_frame(ENVOY_CALL)[..20].to_vec(), 12, "exactly one message"),
    ] {
        let reply = client.call(SHOULD_RATE_LIMIT, body, &[]).await;
        assert_eq!((reply.status, reply.code), (200, Some(code)), "{words}: {reply:?}");
        assert!(reply.message.contains(words) && reply.body.is_empty(), "{words}: {reply:?}");
    }
    assert_eq!(remaining(&server.limiter).await, 10);
    assert_eq!(
        client.call(SHOULD_RATE_LIMIT, encode_frame(&descriptors(10)), &[]).await.code,
        Some(0),
        "10 descriptors in one call"
    );
    assert_eq!(remaining(&server.limiter).await, 0);
}

/// A call with the given number of descriptors, each with a long path.
fn long_call(descriptors: usize, path_bytes: usize) -> Vec<u8> {
    let varint = |mut length: usize| {
        let mut bytes = Vec::new();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).unwrap());
        bytes
    };
    let field = |tag: u8, inner: &[u8]| [&[tag], &varint(inner.len())[..], inner].concat();
    let entry = [field(0x0a, b"path"), field(0x12, &vec![b'/'; path_bytes])].concat();
    let descriptor = field(0x12, &field(0x0a, &entry));
    [field(0x0a, b"edge"), descriptor.repeat(descriptors)].concat()
}

/// Envoy's default limits allow a request that yields five descriptors with the same long path.
#[tokio::test]
async fn large_call_is_decided_by_its_descriptors() {
    let rules = "rules: [{ id: r, match: { path: '/' }, key_by: global, limit: 6/m }]";
    let server = TestGrpcServer::start(rules).await;
    let mut client = server.connect().await;
    let five = encode_frame(&long_call(5, 55_000));
    let reply = client.call(SHOULD_RATE_LIMIT, five.clone(), &[]).await;
    assert_eq!((reply.code, &reply.body[5..7]), (Some(0), &[8, 1][..]), "{}", reply.message);
    let reply = client.call(SHOULD_RATE_LIMIT, five, &[]).await;
    assert_eq!((reply.code, &reply.body[5..7]), (Some(0), &[8, 2][..]), "{}", reply.message);
    let reply = client.call(SHOULD_RATE_LIMIT, encode_frame(&long_call(1, 4_000_000)), &[]).await;
    assert_eq!((reply.code, &reply.body[5..7]), (Some(0), &[8, 1][..]), "{}", reply.message);
}

/// Calls that exceed the memory budget wait. On a shared connection, waiting calls must not block
/// the calls that are being read.
#[tokio::test]
async fn concurrent_large_calls_fit_memory_budget() {
    let rules = "rules: [{ id: r, key_by: global, limit: 1000/m }]";
    let settings = grpc::Settings {
        max_held_bytes: 1 << 20,
        // Long enough even if the machine is busy with other tests.
        message_timeout: Duration::from_secs(120),
        ..grpc::Settings::default()
    };
    let listen =
        listen::Settings { windows: listen::Http2Windows::GRPC, ..listen::Settings::default() };
    let server = TestGrpcServer::start_with(rules, super::new_store(), settings, listen).await;
    let (client, message) = (server.connect().await, encode_frame(&long_call(2, 150_000)));
    let calls = (0..60).map(|_| {
        let sender = client.sender.clone();
        let mut client =
            super::GrpcTestClient { sender, connection: tokio::spawn(async { Ok(()) }) };
        let message = message.clone();
        tokio::spawn(async move { client.call(SHOULD_RATE_LIMIT, message, &[]).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let reply = call.await.unwrap();
        assert_eq!((reply.code, reply.message.as_str()), (Some(0), ""));
        assert_eq!(reply.body[5..7], [8, 1], "OK");
    }
}

/// Envoy forwards some headers of its client with a call (`tracestate`), and accepts up to 60 KiB
/// of headers.
#[tokio::test]
async fn call_with_long_headers_is_decided() {
    let windows = listen::Http2Windows::GRPC;
    let listen = listen::Settings { windows, ..listen::Settings::default() };
    let server = TestGrpcServer::start_with(
        TEN_PER_MINUTE,
        super::new_store(),
        grpc::Settings::default(),
        listen,
    )
    .await;
    let mut client = server.connect().await;
    let long = "x".repeat(60_000);
    let reply =
        client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("tracestate", &long)]).await;
    assert_eq!((reply.status, reply.code), (200, Some(0)));
}

#[tokio::test]
async fn compressed_call_is_unimplemented() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    let encoding = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip")];
    let compressed = [&[1, 0, 0, 0, 37], ENVOY_CALL].concat();
    let response = client.send(SHOULD_RATE_LIMIT, compressed, &encoding).await;
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-accept-encoding"], "identity");
    let plain = client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &encoding).await;
    assert_eq!(plain.code, Some(0), "an uncompressed message is accepted despite grpc-encoding");
}

#[tokio::test]
async fn non_grpc_request_gets_http_status() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    let unknown = client.call("/envoy.service.ratelimit.v2.RateLimitService/X", vec![], &[]).await;
    assert_eq!((unknown.status, unknown.code), (200, Some(12)));
    for (media_type, status) in [
        ("application/grpc+proto", 200),
        ("application/grpc;charset=utf-8", 200),
        ("application/grpc+json", 415),
        ("application/grpc-web", 415),
        ("application/json", 415),
    ] {
        let reply = client
            .call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("content-type", media_type)])
            .await;
        assert_eq!(reply.status, status, "{media_type}");
    }
    let get = Request::get("http://tidegate/").header("content-type", "application/grpc");
    let response =
        client.sender.send_request(get.body(Either::Left(Full::default())).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 405);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(br#"{"type":"about:blank""#), "{body:?}");
    let mut older = RawClient::connect_to(server.address).await;
    let answer = older.post("/json", "{}").await;
    assert_eq!(answer.status, 505);
}

#[tokio::test]
async fn malformed_grpc_timeout_is_invalid_argument() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    for timeout in ["1x", "123456789m"] {
        let reply = client
            .call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", timeout)])
            .await;
        assert_eq!(reply.code, Some(3), "{timeout}: {reply:?}");
    }
    assert_eq!(remaining(&server.limiter).await, 10);
}

#[tokio::test(start_paused = true)]
async fn missing_message_times_out_at_deadline() {
    let server = TestGrpcServer::start(TEN_PER_MINUTE).await;
    let mut client = server.connect().await;
    for (timeout, secs) in [("3S", 3), ("1H", 10)] {
        let begun = tokio::time::Instant::now();
        let headers = [("grpc-timeout", timeout)];
        let never = client.send_body(SHOULD_RATE_LIMIT, Either::Right(PendingBody), &headers).await;
        assert_eq!(never.headers()["grpc-status"], "4");
        assert_eq!(begun.elapsed().as_secs(), secs, "{timeout}");
    }
}

#[tokio::test]
async fn store_outage_applies_on_fail_or_unavailable() {
    let rules = "rules:
      - { id: open, match: { domain: open }, key_by: ip, limit: 5/m, on_fail: allow }
      - { id: shut, match: { domain: shut }, key_by: ip, limit: 5/m, on_fail: deny }";
    let (settings, listen) = (grpc::Settings::default(), listen::Settings::default());
    let server =
        TestGrpcServer::start_with(rules, FaultyStore::unreachable(), settings, listen).await;
    let call = |domain: &[u8]| [&[0x0a, 4], domain, &ENVOY_CALL[6..]].concat();
    let open = server.call_once(&call(b"open")).await;
    assert_eq!((open.code, &open.body[5..7]), (Some(0), &[8, 1][..]), "OK");
    let shut = server.call_once(&call(b"shut")).await;
    assert_eq!((shut.code, &shut.body[5..7]), (Some(0), &[8, 2][..]), "OVER_LIMIT");
    let none = server.call_once(&call(b"none")).await;
    assert_eq!((none.code, &none.body[5..7]), (Some(0), &[8, 1][..]), "no rule, no limit");
    // A limit override belongs to no rule, so no `on_fail` applies.
    let limit = b"\x0a\x04edge\x12\x0e\x0a\x06\x0a\x01k\x12\x01v\x12\x04\x08\x05\x10\x02";
    let reply = server.call_once(limit).await;
    assert_eq!((reply.code, reply.body.is_empty()), (Some(14), true), "{reply:?}");
    assert_eq!(reply.message, "the store does not answer");
}

#[tokio::test]
async fn concurrent_calls_admit_exactly_the_limit() {
    let rules = "rules: [{ id: r, key_by: ip, limit: 137/h }]";
    let server = TestGrpcServer::start(rules).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        let client = server.connect().await;
        for _ in 0..100 {
            let mut client = super::GrpcTestClient {
                sender: client.sender.clone(),
                connection: tokio::spawn(async { Ok(()) }),
            };
            calls.push(tokio::spawn(async move {
                client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[]).await
            }));
        }
        tokio::spawn(client.connection);
    }
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap().body[6] == 1);
    }
    assert_eq!(passed, 137);
}
