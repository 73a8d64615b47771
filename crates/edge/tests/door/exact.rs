//! Many callers at once: exactly as many pass as the limit says, however they interleave.

use std::sync::Arc;

use tidegate_edge::http;
use tidegate_edge::listen::{Crew, Settings};

use crate::house::House;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connections_admit_exactly_the_limit() {
    admit_exactly_the_limit(&Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_do_on_threads_of_their_own() {
    let crew = Some(Crew::start("door", 3).unwrap());
    admit_exactly_the_limit(&Settings { crew, ..Settings::default() }).await;
}

async fn admit_exactly_the_limit(listen: &Settings) {
    const CONNECTIONS: usize = 200;
    const EACH: usize = 10;
    for limit in [1, 7, 199, 1000, 1999] {
        let rules = format!(
            "rules:\n  - {{ id: a, key_by: global, limit: {limit}/h }}\n  \
             - {{ id: b, key_by: ip, limit: 100000/h }}"
        );
        let house =
            Arc::new(House::open_at(&rules, http::Settings::default(), listen.clone()).await);
        let mut callers = tokio::task::JoinSet::new();
        for n in 0..CONNECTIONS {
            let house = Arc::clone(&house);
            callers.spawn(async move {
                let mut caller = house.caller().await;
                let body = format!(r#"{{"facts":{{"ip":"203.0.113.{}"}}}}"#, n % 3);
                let mut admitted = 0;
                for _ in 0..EACH {
                    let answer = caller.post("/v1/check", &body).await;
                    assert!(matches!(answer.status, 200 | 429), "{}", answer.body);
                    admitted += usize::from(answer.status == 200);
                }
                admitted
            });
        }
        let admitted: usize = callers.join_all().await.into_iter().sum();
        assert_eq!(admitted, limit, "of {}", CONNECTIONS * EACH);
    }
}
