//! A hyper service. hyper has no request extensions for the address of the connection, so the accept
//! loop inserts it.
//!
//! ```sh
//! cargo run -p tidegate-tower --example hyper_service
//! curl -i http://127.0.0.1:3000/
//! ```

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate::Limiter;
use tidegate_tower::{PeerAddress, RateLimitLayer};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};

/// Serves until dropped.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let limiter = Limiter::builder().limit("3/min by ip").build()?;
    let service = RateLimitLayer::new(limiter)?.layer(tower::service_fn(handle));
    loop {
        let (stream, address) = listener.accept().await?;
        let service = service.clone();
        let with_peer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress::from(address));
            service.clone().oneshot(request)
        });
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(TokioIo::new(stream), with_peer).await {
                eprintln!("connection from {address} failed: {error}");
            }
        });
    }
}

async fn handle(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}
