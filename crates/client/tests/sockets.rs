//! The examples and the shared quota, over real sockets and against real limiters.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each example has a `main` function")]

#[path = "../examples/blocking_loop.rs"]
mod blocking_loop;
#[path = "../examples/grpc_client.rs"]
mod grpc_client;
#[path = "../examples/reqwest_client.rs"]
mod reqwest_client;
#[path = "../examples/worker_loop.rs"]
mod worker_loop;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_client::{
    CallDeadline, ClientError, ClientLayer, ClientStats, QuotaAnswer, SharedQuota as _,
    SharedQuotaError, TidegateQuota,
};
use tidegate_core::time::Micros;
use tidegate_fixtures::server::{TestServer, compile_rules};
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_response::{HeaderSettings, refusal_response, write_headers};
use tidegate_rules::Facts;
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _};

type ServerBody = BoxBody<Bytes, Infallible>;

/// A server for HTTP/1.1 and HTTP/2 on a free port, with a limiter on the real clock. Returns its
/// URL.
async fn start_server(rules: &str) -> String {
    let limiter = Arc::new(Limiter::new(MemoryStore::new(), compile_rules(rules)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                let respond = service_fn(move |request| respond(Arc::clone(&limiter), request));
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), respond).await;
            });
        }
    });
    url
}

async fn respond(
    limiter: Arc<Limiter<MemoryStore>>,
    request: Request<Incoming>,
) -> Result<Response<ServerBody>, Infallible> {
    let decision = limiter.decide(&Facts::new(), 1).await;
    let settings = HeaderSettings::default();
    let is_grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == GRPC);
    let mut response = match decision.is_allowed() {
        true if is_grpc => {
            // One empty message.
            let message = Full::from(Bytes::from_static(&[0; 5]));
            let status = HeaderValue::from_static("0");
            let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), status)]);
            let body = message.with_trailers(async { Some(Ok(trailers)) }).boxed();
            Response::builder().header(CONTENT_TYPE, GRPC).body(body).unwrap()
        }
        true => Response::new(ServerBody::default()),
        false => refusal_response(&decision, request.headers(), &settings, 0).map(BodyExt::boxed),
    };
    write_headers(&decision, &settings, 0, response.headers_mut());
    Ok(response)
}

const GRPC: &str = "application/grpc";

/// A quota that 40 calls exceed, unless they are paced or take 50 ms each.
const SMALL_QUOTA: &str = "rules: [{ id: api, key_by: global, limit: 20/s }]";

fn assert_paced(stats: &ClientStats) {
    assert_eq!((stats.sent, stats.gave_up), (40 + stats.retried, 0), "{stats:?}");
    assert!(stats.paced > 0 && stats.refused <= 6, "{stats:?}");
}

#[tokio::test]
async fn hyper_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    assert_paced(&worker_loop::run(&url, 40).await.unwrap());
}

#[tokio::test]
async fn reqwest_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    assert_paced(&reqwest_client::run(&url, 40).await.unwrap());
}

#[tokio::test]
async fn tonic_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    let (stats, refused) = grpc_client::run(&url, 40).await.unwrap();
    assert_paced(&stats);
    assert_eq!((stats.refused, stats.retried), (refused as u64, 0));
}

#[tokio::test]
async fn grpc_refusals_are_recognised() {
    let url = start_server("rules: [{ id: api, key_by: global, limit: 1/h }]").await;
    let (stats, refused) = grpc_client::run(&url, 1).await.unwrap();
    assert_eq!((stats.refused, refused), (0, 0));
    let (stats, refused) = grpc_client::run(&url, 1).await.unwrap();
    assert_eq!((stats.refused, refused), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    let run = move || blocking_loop::run(&url, 40).unwrap();
    assert_paced(&tokio::task::spawn_blocking(run).await.unwrap());
}

type HyperQuota = TidegateQuota<
    Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
    Full<Bytes>,
>;

fn quota_at(server: &TestServer) -> HyperQuota {
    let http = Client::builder(TokioExecutor::new()).build_http();
    TidegateQuota::new(http, &format!("http://{}/", server.address)).unwrap()
}

#[tokio::test]
async fn tidegate_counts_a_shared_quota() {
    let server = TestServer::start("rules: [{ id: api, key_by: host, limit: 3/min }]").await;
    let quota = quota_at(&server);
    let granted = Ok(QuotaAnswer::granted());
    assert_eq!(quota.acquire("api.example", 2).await, granted);
    assert_eq!(quota.acquire("api.example", 1).await, granted);
    let wait = Duration::from_secs(20);
    assert_eq!(quota.acquire("api.example", 1).await, Ok(QuotaAnswer::RetryAfter(wait)));
    assert_eq!(quota.acquire("other \"example\"", 1).await, granted, "another key");
    assert_eq!(quota.acquire("api.example", 4).await, Ok(QuotaAnswer::NeverFits));
    server.clock.advance(Micros::from_secs(20));
    assert_eq!(quota.acquire("api.example", 1).await, granted);
}

#[tokio::test]
async fn two_processes_share_one_quota() {
    let server = TestServer::start("rules: [{ id: api, key_by: host, limit: 5/h }]").await;
    let upstream = start_server("rules: [{ id: api, key_by: global, limit: 1000/s }]").await;
    let mut sent = 0;
    for process in 0..2 {
        let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let layer = ClientLayer::new().strict_shared_quota(Arc::new(quota_at(&server)));
        let client = layer.layer(http);
        for _ in 0..4 {
            let mut request = Request::get(&upstream).body(Full::default()).unwrap();
            request.extensions_mut().insert(CallDeadline::after(Duration::from_secs(10)));
            match client.clone().oneshot(request).await {
                Ok(_) => sent += 1,
                Err(ClientError::DeadlineTooShort { .. }) => assert_eq!(process, 1),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(sent, 5, "of 8 calls");
}

#[tokio::test]
async fn queueing_rule_delays_the_call() {
    let rules = "rules: [{ id: api, key_by: host, limit: { requests: 1, window: 2s, burst: 2, \
                 algorithm: leaky_bucket, queue: true } }]";
    let server = TestServer::start(rules).await;
    let quota = quota_at(&server);
    assert_eq!(quota.acquire("api.example", 1).await, Ok(QuotaAnswer::granted()));
    let delay = Duration::from_secs(2);
    assert_eq!(quota.acquire("api.example", 1).await, Ok(QuotaAnswer::Granted { delay }));
}

#[tokio::test]
async fn unusable_quota_server_is_an_error() {
    let server = TestServer::start("rules: [{ id: api, match: { host: x }, limit: 3/min }]").await;
    let reason = |answer: Result<QuotaAnswer, SharedQuotaError>| match answer {
        Err(SharedQuotaError::Unavailable(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let unmatched = reason(quota_at(&server).acquire("api.example", 1).await);
    assert!(unmatched.contains("no rule with a limit applies"), "{unmatched}");
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let silent = TidegateQuota::new(http, &silent).unwrap().timeout(Duration::from_millis(20));
    let late = reason(silent.acquire("api.example", 1).await);
    assert!(late.contains("did not answer in time"), "{late}");
}
