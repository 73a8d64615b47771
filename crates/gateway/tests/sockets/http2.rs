//! Clients that use HTTP/2.

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::UNREACHED_LIMIT;
use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::TestGateway;
use tidegate_fixtures::server::TEN_PER_HOUR;

pub(super) async fn connect_http2(gate: &TestGateway) -> http2::SendRequest<Full<Bytes>> {
    let tcp = TcpStream::connect(gate.address).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
    let (sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    sender
}

fn post_request(path: &str, body: &'static str) -> Request<Full<Bytes>> {
    let uri = format!("http://api.example.com{path}");
    Request::post(uri).body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

#[tokio::test]
async fn http2_request_reaches_http1_upstream() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut client = connect_http2(&gate).await;
    let response = client.send_request(post_request("/a/../b?c", "body")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
    assert_eq!(response.headers()["x-ratelimit-remaining"], "999999");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    let seen = upstream.next_request().await;
    assert!(seen.starts_with("POST /b?c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("host: api.example.com\r\n") && seen.ends_with("\r\n\r\nbody"), "{seen}");
}

#[tokio::test]
async fn duplicate_content_length_is_rejected() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut client = connect_http2(&gate).await;
    for (lengths, status) in [(1, 200), (2, 400)] {
        let mut request = post_request("/", "body");
        for _ in 0..lengths {
            request.headers_mut().append("content-length", "4".parse().unwrap());
        }
        assert_eq!(client.send_request(request).await.unwrap().status(), status, "{lengths}");
    }
    assert_eq!(upstream.received_requests().len(), 1);
}

#[tokio::test]
async fn concurrent_streams_share_a_limit() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(TEN_PER_HOUR, upstream.address).await;
    let client = connect_http2(&gate).await;
    let mut requests = Vec::new();
    for _ in 0..50 {
        let mut client = client.clone();
        requests.push(tokio::spawn(async move {
            client.send_request(post_request("/", "")).await.unwrap().status().as_u16()
        }));
    }
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(request.await.unwrap());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 40);
    assert_eq!(upstream.received_requests().len(), 10);
}

/// A client grants flow-control window per stream, so it can stall one stream without blocking the
/// connection.
#[tokio::test(start_paused = true)]
async fn stalled_response_stream_closes_connection() {
    let reply = |head: &str| {
        let length = if head.starts_with("POST /large ") { 8 << 20 } else { 5 };
        super::scripted_upstream::UpstreamReply::Send(super::scripted_upstream::ok_response(
            &"x".repeat(length),
        ))
    };
    let upstream = ScriptedUpstream::start_replying(reply).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let started = tokio::time::Instant::now();
    let mut client = connect_http2(&gate).await;
    let stalled = client.send_request(post_request("/large", "")).await.unwrap();
    while started.elapsed() < std::time::Duration::from_secs(50) {
        let other = client.send_request(post_request("/", "")).await.unwrap().into_body();
        assert_eq!(other.collect().await.unwrap().to_bytes().len(), 5);
        tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    }
    while !client.is_closed() {
        assert!(
            started.elapsed() < std::time::Duration::from_secs(80),
            "the stalled connection is still open"
        );
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(stalled.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_goaway_and_finishes_streams() {
    let slow = std::time::Duration::from_secs(5);
    let late = move |_: &str| {
        super::scripted_upstream::UpstreamReply::SendAfter(
            slow,
            super::scripted_upstream::ok_response("late"),
        )
    };
    let mut upstream = ScriptedUpstream::start_replying(late).await;
    let gate = TestGateway::start(UNREACHED_LIMIT, upstream.address).await;
    let mut client = connect_http2(&gate).await;
    let in_flight = tokio::spawn(client.send_request(post_request("/", "")));
    upstream.next_request().await;
    gate.stop.send(()).unwrap();
    let response = in_flight.await.unwrap().unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "late");
    gate.server_task.await.unwrap();
    assert!(client.send_request(post_request("/", "")).await.is_err(), "the server sent GOAWAY");
}
