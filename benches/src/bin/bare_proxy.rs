//! A minimal hyper proxy: the baseline for the gateway benchmark.
//!
//! `bare_proxy 127.0.0.1:8000 127.0.0.1:3000` listens on the first address and forwards requests to
//! the second.
//!
//! It uses hyper's server and the pooling client of hyper-util, and removes hop-by-hop headers. It
//! has no limiter, no timeouts and no checks of the request. It uses the same allocator and runtime
//! as the gateway.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;

use http::header::{
    CONNECTION, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[derive(Clone)]
struct BareProxy {
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream] = args.as_slice() else { panic!("usage: bare_proxy LISTEN UPSTREAM") };
    let listen: SocketAddr = listen.parse().expect("LISTEN is an address and port");
    let upstream: Authority = upstream.parse().expect("UPSTREAM is a host and port");
    // As many workers as the gateway: TOKIO_WORKER_THREADS, or one per core.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("build the tokio runtime").block_on(serve(listen, upstream));
}

async fn serve(listen: SocketAddr, upstream: Authority) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let proxy = BareProxy { client, upstream };
    let listener = TcpListener::bind(listen).await.expect("bind the LISTEN address");
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let service = service_fn(|request| proxy.forward(request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
        });
    }
}

impl BareProxy {
    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Error> {
        strip_hop_headers(request.headers_mut());
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(self.upstream.clone()));
        *request.uri_mut() = Uri::from_parts(parts).expect("build the upstream URI");
        let mut response = self.client.request(request).await?;
        strip_hop_headers(response.headers_mut());
        Ok(response)
    }
}

fn strip_hop_headers(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
