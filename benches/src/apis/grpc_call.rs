//! A single gRPC call that checks `grpc-status`, which `h2load` does not read.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Prefixes a message with the gRPC frame header: a compression flag and the length.
#[must_use]
pub fn frame_message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("message length fits in u32").to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Encodes a length-delimited protobuf field: a string or a nested message.
#[must_use]
pub fn encode_field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("field length fits in u8");
    assert!(length < 0x80, "field is too long for a one-byte length");
    [&[number << 3 | 2, length][..], value].concat()
}

/// Makes one call and returns the length of the response message, including its frame header.
///
/// # Panics
/// When the response is not 200 with `grpc-status` 0.
#[must_use]
pub fn call_once(url: &str, body: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("build the tokio runtime").block_on(send_call(url, body.to_vec().into()))
}

async fn send_call(url: &str, body: Bytes) -> usize {
    let request = Request::post(url)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body))
        .expect("build the request");
    let address = request.uri().authority().expect("URL has a host").as_str();
    let tcp = TcpStream::connect(address).await.expect("connect to the server");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
    let (mut sender, connection) = handshake.expect("HTTP/2 handshake");
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.expect("receive a response");
    assert_eq!(response.status(), 200, "{url}");
    let collected = response.into_body().collect().await.expect("receive the whole body");
    let status = collected.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
    assert_eq!(status.as_ref().map(HeaderValue::as_bytes), Some(&b"0"[..]), "{url}: grpc-status");
    connection.abort();
    collected.to_bytes().len()
}
