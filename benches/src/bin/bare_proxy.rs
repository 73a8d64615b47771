//! The least that a proxy on hyper does: our own floor. `bare_proxy 127.0.0.1:8000 127.0.0.1:3000`
//! listens on the first address and passes requests on to the second.
//!
//! hyper's server, the pooling client of hyper-util, headers for one hop taken out. No limiter, no
//! timeouts, no protection: it is here to be measured beside the gateway, which has the same allocator
//! and the same runtime.

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
struct Proxy {
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream] = words.as_slice() else { panic!("bare_proxy LISTEN UPSTREAM") };
    let listen: SocketAddr = listen.parse().expect("an address to listen on");
    let upstream: Authority = upstream.parse().expect("a host and a port");
    // As many workers as the gateway: what TOKIO_WORKER_THREADS says, or one a core.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(serve(listen, upstream));
}

async fn serve(listen: SocketAddr, upstream: Authority) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let proxy = Proxy { client, upstream };
    let listener = TcpListener::bind(listen).await.expect("the address is free");
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let service = service_fn(|request| proxy.pass(request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
        });
    }
}

impl Proxy {
    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Error> {
        strip(request.headers_mut());
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(self.upstream.clone()));
        *request.uri_mut() = Uri::from_parts(parts).expect("a path, a scheme and an authority");
        let mut response = self.client.request(request).await?;
        strip(response.headers_mut());
        Ok(response)
    }
}

fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
