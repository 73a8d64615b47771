//! Refusals as hyper sends them: the response to `HEAD` has the headers of `GET` and no body, and
//! the response to a gRPC call ends with its headers.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_response as respond;
use tokio::io::DuplexStream;

use crate::fixture::{ONE_PER_HOUR, ResponseFixture, facts_for_ip, parse_settings};

/// Opens a connection to a server that refuses every request.
async fn connect_to_refusing_server(http2: bool) -> DuplexStream {
    let decision = Arc::new(
        ResponseFixture::new(ONE_PER_HOUR).exhaust_limit(&facts_for_ip("192.0.2.1")).await,
    );
    let refuse = service_fn(move |request: Request<Incoming>| {
        let decision = Arc::clone(&decision);
        let response =
            respond::refusal_response(&decision, request.headers(), &parse_settings(""), 0);
        async { Ok::<_, Infallible>(response) }
    });
    let (client, server_io) = tokio::io::duplex(1 << 16);
    let server_io = TokioIo::new(server_io);
    if http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(server_io, refuse));
    } else {
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(server_io, refuse),
        );
    }
    client
}

async fn send_request(method: Method) -> (HeaderMap, Bytes) {
    let client = TokioIo::new(connect_to_refusing_server(false).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(client).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri("/").header("host", "x");
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await;
    let (mut head, body) = response.unwrap().into_parts();
    assert_eq!(head.status, 429);
    head.headers.remove("date");
    (head.headers, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn head_refusal_matches_get_without_body() {
    let (get, body) = send_request(Method::GET).await;
    assert_eq!(get[CONTENT_LENGTH], body.len().to_string());
    let (head, empty_body) = send_request(Method::HEAD).await;
    assert_eq!(head, get);
    assert!(empty_body.is_empty() && !body.is_empty());
}

#[tokio::test]
async fn grpc_refusal_is_trailers_only() {
    let client = TokioIo::new(connect_to_refusing_server(true).await);
    let executor = TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, client).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://x/pkg.Service/Call")
        .header(CONTENT_TYPE, "application/grpc+proto")
        .header("te", "trailers");
    let response: Response<Incoming> =
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc+proto");
    assert!(!response.headers().contains_key(CONTENT_LENGTH));
    assert!(response.body().is_end_stream(), "the headers do not end the stream");
}
