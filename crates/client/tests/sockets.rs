//! The examples and the shared quota, over real sockets and against real limiters.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "the examples have a `main` of their own"
)]

#[path = "../examples/blocking_loop.rs"]
mod blocking_loop;
#[path = "../examples/reqwest_client.rs"]
mod reqwest_client;
#[path = "../examples/worker_loop.rs"]
mod worker_loop;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
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

/// A server on a free port, with a limiter on the real clock. Returns its URL.
async fn start_server(rules: &str) -> String {
    let limiter = Arc::new(Limiter::new(MemoryStore::new(), compile_rules(rules)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let limiter = Arc::clone(&limiter);
            let respond = service_fn(move |request: Request<hyper::body::Incoming>| {
                let limiter = Arc::clone(&limiter);
                async move {
                    let decision = limiter.decide(&Facts::new(), 1).await;
                    let settings = HeaderSettings::default();
                    let mut response = match decision.is_allowed() {
                        true => Response::new(Full::<Bytes>::default()),
                        false => refusal_response(&decision, request.headers(), &settings, 0),
                    };
                    write_headers(&decision, &settings, 0, response.headers_mut());
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), respond));
        }
    });
    url
}

/// A quota that 60 calls exceed, unless they are paced.
const SMALL_QUOTA: &str = "rules: [{ id: api, key_by: global, limit: 100/s burst 20 }]";

fn assert_paced(stats: &ClientStats) {
    assert_eq!((stats.sent, stats.gave_up), (60 + stats.retried, 0), "{stats:?}");
    assert!(stats.paced > 0 && stats.refused <= 6, "{stats:?}");
}

#[tokio::test]
async fn hyper_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    assert_paced(&worker_loop::run(&url, 60).await.unwrap());
}

#[tokio::test]
async fn reqwest_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    assert_paced(&reqwest_client::run(&url, 60).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_client_is_paced_over_sockets() {
    let url = start_server(SMALL_QUOTA).await;
    let run = move || blocking_loop::run(&url, 60).unwrap();
    assert_paced(&tokio::task::spawn_blocking(run).await.unwrap());
}

#[tokio::test]
async fn unpaced_calls_exceed_the_small_quota() {
    let url = start_server(SMALL_QUOTA).await;
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut refused = 0;
    for _ in 0..60 {
        let request = Request::get(&url).body(Full::default()).unwrap();
        refused += usize::from(http.request(request).await.unwrap().status() == 429);
    }
    assert!(refused > 0, "the quota must be too small, or the other tests prove nothing");
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
