//! Limiters of several processes that share their counters in a real Redis server.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use tidegate::{BuildError, Facts, Limiter, RedisStore};
use tidegate_testkit::process::WAIT_TIMEOUT;
use tidegate_testkit::redis::RedisServer;

const RULES: &str = "
rules:
  - { id: exact, key_by: user_id, limit: 60/365d using fixed_window }
  - { id: leased, match: { tier: leased }, key_by: user_id, limit: 1000/365d, consistency: leased }
";

/// A limiter as each process has one. The deadline is generous, because a scheduler stall on a
/// small machine would count as an outage.
async fn connect(url: &str, rules: &str) -> Limiter<RedisStore> {
    let builder = Limiter::builder().rules(rules).key_secret(b"of the fleet").redis(url);
    builder.deadline(Duration::from_secs(2)).connect().await.unwrap()
}

async fn admit(limiter: &Limiter<RedisStore>, facts: &Facts<'_>, requests: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u32::from(limiter.check(facts).await.is_allowed());
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_on_one_redis_admit_exactly_limit() {
    let server = RedisServer::start();
    let url = server.url();
    let (first, second) = (connect(&url, RULES).await, connect(&url, RULES).await);
    let facts = Facts::from([("user_id", "ada")]);
    let admitted = tokio::join!(admit(&first, &facts, 50), admit(&second, &facts, 50));
    assert_eq!(admitted.0 + admitted.1, 60, "{admitted:?}");
    let decision = first.check(&Facts::from([("user_id", "bob")])).await;
    second.refund(decision).await;
    assert_eq!(second.peek(&Facts::from([("user_id", "bob")])).await.remaining(), Some(60));
}

/// Leased units that a process did not spend are the others' once it has closed its limiter. Of
/// 1 000 units, 999 are lent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_limiter_returns_leased_units() {
    let rules = "rules: [{ id: leased, key_by: global, limit: 1000/365d, consistency: leased }]";
    let server = RedisServer::start();
    let url = server.url();
    let (first, second) = (connect(&url, rules).await, connect(&url, rules).await);
    let facts = Facts::new();
    let admitted = admit(&first, &facts, 300).await;
    assert_eq!(admitted, 300);
    first.close().await;
    drop(first);
    // A refusal is repeated for a moment without asking Redis.
    let mut admitted = 0;
    let all_others = async {
        while admitted < 699 {
            admitted += admit(&second, &facts, 1).await;
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::time::timeout(WAIT_TIMEOUT, all_others).await;
    assert!(result.is_ok(), "{admitted} of 699");
    assert_eq!(admit(&second, &facts, 100).await, 0);
}

#[tokio::test]
async fn unreachable_server_is_an_error_unless_started_without_waiting() {
    let nobody = "redis://127.0.0.1:1/0";
    let builder = || Limiter::builder().limit("1/h by user_id").redis(nobody);
    let error = builder().connect().await.unwrap_err();
    assert!(matches!(error, BuildError::RedisUnreachable { .. }), "{error}");
    let limiter = builder().start().unwrap();
    let facts = Facts::from([("user_id", "ada")]);
    assert_eq!(admit(&limiter, &facts, 3).await, 3, "`on_fail: allow` is the default");
    let error = Limiter::builder().limit("1/h by ip").redis("http://x").start().unwrap_err();
    assert!(matches!(error, BuildError::RedisUrl(_)), "{error}");
}
