//! gRPC through the gateway: HTTP/2 on both sides, trailers, and refusals as a gRPC status.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::support::ServerProcess;

/// An upstream that speaks plaintext HTTP/2, echoes the request and ends with trailers.
async fn start_echo_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(tcp), service_fn(echo)));
        }
    });
    address
}

async fn echo(
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let header = |name: &str| request.headers().get(name).cloned().unwrap();
    let (te, kind) = (header("te"), header("content-type"));
    let authority = request.uri().authority().unwrap().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers.insert("grpc-message", "ok".parse().unwrap());
    let body = Full::new(body).with_trailers(std::future::ready(Some(Ok(trailers))));
    let response = Response::builder().header("content-type", kind).header("x-te", te);
    Ok(response.header("x-authority", authority).body(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn grpc_calls_keep_trailers_and_status() {
    let upstream = format!("h2c://{}", start_echo_upstream().await);
    let server = tokio::task::block_in_place(|| {
        ServerProcess::start_gateway(&upstream, &["--limit", "2/d by ip"])
    });
    let tcp = TcpStream::connect(&server.gateway).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
            .await
            .unwrap();
    tokio::spawn(connection);
    for left in ["1", "0"] {
        let response = client.send_request(grpc_request()).await.unwrap();
        let header =
            |name: &str| response.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(response.status(), 200);
        assert_eq!(
            (header("content-type"), header("x-te")),
            ("application/grpc".into(), "trailers".into())
        );
        assert_eq!(header("x-authority"), "grpc.test");
        assert_eq!(header("x-ratelimit-remaining"), left);
        let whole = response.into_body().collect().await.unwrap();
        let trailers = whole.trailers().expect("trailers").clone();
        assert_eq!(whole.to_bytes(), "\0\0\0\0\x05hello");
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        assert_eq!(trailers.get("grpc-message").unwrap(), "ok");
    }
    let refused = client.send_request(grpc_request()).await.unwrap();
    assert_eq!(refused.status(), 200, "gRPC reports errors in its own status");
    assert_eq!(refused.headers().get("content-type").unwrap(), "application/grpc");
    let status = refused.headers().get("grpc-status").cloned();
    let whole = refused.into_body().collect().await.unwrap();
    let status = status.or_else(|| whole.trailers()?.get("grpc-status").cloned());
    assert_eq!(status.unwrap(), "8");
    assert!(whole.to_bytes().is_empty());
}

fn grpc_request() -> Request<Full<Bytes>> {
    Request::post("http://grpc.test/hello.Greeter/SayHello")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(b"\0\0\0\0\x05hello")))
        .unwrap()
}
