//! One gRPC call, looked at closely: `h2load` does not read the status that comes after the message.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A message with its length before it.
#[must_use]
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A string field of protobuf, or a message in a message.
#[must_use]
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("a short field");
    assert!(length < 0x80, "a short field");
    [&[number << 3 | 2, length][..], value].concat()
}

/// Asks once and returns the length of the answer's message, with its frame.
///
/// # Panics
/// When the call is not answered with 200 and `grpc-status` 0.
#[must_use]
pub fn once(url: &str, body: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(ask(url, body.to_vec().into()))
}

async fn ask(url: &str, body: Bytes) -> usize {
    let request = Request::post(url)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body))
        .expect("a request");
    let at = request.uri().authority().expect("a host").as_str();
    let tcp = TcpStream::connect(at).await.expect("a connection");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
    let (mut sender, connection) = handshake.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!(response.status(), 200, "{url}");
    let collected = response.into_body().collect().await.expect("a whole answer");
    let status = collected.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
    assert_eq!(status.as_ref().map(HeaderValue::as_bytes), Some(&b"0"[..]), "{url}: grpc-status");
    connection.abort();
    collected.to_bytes().len()
}
