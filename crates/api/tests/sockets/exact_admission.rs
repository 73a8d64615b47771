//! Tests that concurrent callers are admitted exactly up to the limit, however they interleave.

use std::sync::Arc;

use tidegate_api::http;
use tidegate_net::listen::{Settings, WorkerPool};

use tidegate_fixtures::server::TestServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_connections_admit_exactly_the_limit() {
    assert_exact_admission(&Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_pool_admits_exactly_the_limit() {
    let workers = Some(WorkerPool::start("api", 3).unwrap());
    assert_exact_admission(&Settings { workers, ..Settings::default() }).await;
}

async fn assert_exact_admission(listen: &Settings) {
    const CONNECTIONS: usize = 200;
    const REQUESTS_PER_CONNECTION: usize = 10;
    for limit in [1, 7, 199, 1000, 1999] {
        let rules = format!(
            "rules:\n  - {{ id: a, key_by: global, limit: {limit}/h }}\n  \
             - {{ id: b, key_by: ip, limit: 100000/h }}"
        );
        let server = Arc::new(
            TestServer::start_with_listen(&rules, http::Settings::default(), listen.clone()).await,
        );
        let mut callers = tokio::task::JoinSet::new();
        for n in 0..CONNECTIONS {
            let server = Arc::clone(&server);
            callers.spawn(async move {
                let mut caller = server.connect().await;
                let body = format!(r#"{{"facts":{{"ip":"203.0.113.{}"}}}}"#, n % 3);
                let mut admitted = 0;
                for _ in 0..REQUESTS_PER_CONNECTION {
                    let answer = caller.post("/v1/check", &body).await;
                    assert!(matches!(answer.status, 200 | 429), "{}", answer.body);
                    admitted += usize::from(answer.status == 200);
                }
                admitted
            });
        }
        let admitted: usize = callers.join_all().await.into_iter().sum();
        assert_eq!(admitted, limit, "of {}", CONNECTIONS * REQUESTS_PER_CONNECTION);
    }
}
