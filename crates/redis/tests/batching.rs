//! Batching: queued requests share one script call. The limit stays exact, every caller gets the
//! reply to its own request, and the server gets fewer calls than requests.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::sync::Arc;

use common::{
    RedisFixture, StoreRequest, TEST_TIMEOUT, apply_with_source, calls_during, charge, options,
    policy,
};
use futures_util::future::join_all;
use tidegate_core::decision::{Reading, Verdict};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::{ManualClock, Micros};
use tidegate_redis::{RedisOptions, RedisStore};
use tidegate_testkit::quotas::RATE_ALGORITHMS;
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};

const TASKS: u64 = 256;

const WINDOW: Micros = Micros::from_secs(60);

/// Applies each charge in a separate task, on several threads, to one store.
fn charge_concurrently(
    charges: impl Iterator<Item = (u64, Policy, u64)>,
    clock: ManualClock,
    url: &str,
) -> Vec<Reading> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime: Runtime = runtime.expect("a runtime");
    let options = RedisOptions { test_clock: Some(clock), ..options(url) };
    runtime.block_on(async {
        let store = Arc::new(RedisStore::start(&options));
        assert!(store.wait_ready(TEST_TIMEOUT).await, "{:?}", store.unavailable_reason());
        let tasks = charges.map(|(key, policy, cost)| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let charge = Charge { cost, ..charge(key, &policy) };
                apply_with_source(&store, Op::Charge, &[charge]).await.1[0]
            })
        });
        let reply = join_all(tasks.collect::<Vec<_>>()).await;
        reply.into_iter().map(|reply| reply.expect("a task that ends")).collect()
    })
}

fn count_admitted(reply: &[Reading]) -> usize {
    reply.iter().filter(|reply| reply.verdict == Verdict::Allow).count()
}

#[test]
fn concurrent_requests_admit_exactly_the_limit() {
    let server = RedisServer::start();
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        for (cost, limit) in [(1, 1), (1, 100), (1, 255), (1, 256), (3, 100)] {
            let key = key as u64 * 1_000 + cost * 300 + limit;
            let policy = policy(algorithm, limit, WINDOW);
            let clock = ManualClock::new(common::START);
            let mut reply = Vec::new();
            let calls = calls_during(&server, "evalsha", || {
                reply = charge_concurrently(
                    (0..TASKS).map(|_| (key, policy, cost)),
                    clock,
                    &server.url(),
                );
            });
            assert_eq!(
                count_admitted(&reply) as u64,
                limit / cost,
                "{algorithm}, {limit} by {cost}"
            );
            assert!(calls < TASKS / 2, "{calls} calls for {TASKS} requests");
        }
    }
}

#[test]
fn concurrent_requests_get_their_own_answers() {
    let server = RedisServer::start();
    let limited =
        |i: u64| policy(RATE_ALGORITHMS[usize::try_from(i % 6).expect("a place")], i + 1, WINDOW);
    let clock = ManualClock::new(common::START);
    let charges = (0..TASKS).map(|i| (i, limited(i), i / 2 + 1));
    let reply = charge_concurrently(charges, clock, &server.url());
    for (i, reply) in reply.iter().enumerate() {
        let limit = i as u64 + 1;
        assert_eq!((reply.limit, reply.remaining), (limit, limit - (i as u64 / 2 + 1)));
    }
}

#[test]
fn lone_request_is_one_call() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    for algorithm in RATE_ALGORITHMS {
        let policy = policy(algorithm, 20, WINDOW);
        let several: Vec<Charge<'_>> = (0..5).map(|key| charge(key, &policy)).collect();
        let calls = calls_during(&server, "evalsha", || {
            for _ in 0..20 {
                fixture.apply(Op::Charge, &several);
            }
        });
        assert_eq!(calls, 20, "{algorithm}");
        fixture.apply(Op::Reset, &several);
    }
}

#[test]
fn concurrent_requests_share_one_call() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let policy = policy(Algorithm::TokenBucket, 20, WINDOW);
    let requests: Vec<_> =
        (0..64).map(|i| StoreRequest::single(Op::Charge, charge(i % 4, &policy))).collect();
    let calls = calls_during(&server, "evalsha", || _ = fixture.apply_batch(&requests));
    assert_eq!(calls, 1);
}

/// Regression: the script returned more about a log of warnings than the store read, once for each
/// warning. Later requests of the same call got the reply for another log, and the store failed.
#[test]
fn log_warnings_do_not_shift_answers() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let (one, three) = (policy(Algorithm::TokenBucket, 1, WINDOW), log_policy(3));
    let warned = Charge { grace: Some(&three), ..charge(1, &one) };
    let long = log_policy(1_000);
    let mut requests = vec![StoreRequest::single(Op::Charge, warned); 5];
    requests.push(StoreRequest::single(Op::Charge, Charge { cost: 7, ..charge(2, &long) }));
    requests.push(StoreRequest::single(Op::Charge, warned));
    requests.push(StoreRequest::single(Op::Peek, charge(2, &long)));
    let reply = fixture.apply_batch(&requests);
    let verdicts: Vec<Verdict> = reply.iter().map(|reply| reply[0].verdict).collect();
    let warnings = [Verdict::Allow, Verdict::Warn, Verdict::Warn, Verdict::Warn, Verdict::Deny];
    assert_eq!(verdicts[..5], warnings);
    assert_eq!(verdicts[5..], [Verdict::Allow, Verdict::Deny, Verdict::Allow]);
    assert_eq!(reply[7][0].remaining, 993);
}

fn log_policy(requests: u64) -> Policy {
    policy(Algorithm::SlidingWindowLog, requests, WINDOW)
}

/// Spawns a request, which is in flight or queued when this returns: on one thread, every ready
/// task has run after a few yields.
async fn spawn_charge(store: &Arc<RedisStore>, key: u64) -> JoinHandle<Reading> {
    let store = Arc::clone(store);
    let begun = tokio::spawn(async move {
        let policy = policy(Algorithm::TokenBucket, 10 + key, WINDOW);
        apply_with_source(&store, Op::Charge, &[charge(key, &policy)]).await.1[0]
    });
    yield_many_times().await;
    begun
}

async fn yield_many_times() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[test]
fn cancelled_queued_request_is_not_charged() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let RedisFixture { store, runtime, .. } = fixture;
    let store = Arc::new(store);
    runtime.block_on(async {
        server.process().pause();
        // Two calls are in flight; further requests are queued.
        let in_flight = [spawn_charge(&store, 1).await, spawn_charge(&store, 2).await];
        let mut queued = Vec::new();
        for key in 3..10 {
            queued.push(spawn_charge(&store, key).await);
        }
        let cancelled: [u64; 4] = [1, 3, 5, 9];
        for (key, task) in (1..).zip(in_flight.iter().chain(&queued)) {
            if cancelled.contains(&key) {
                task.abort();
            }
        }
        yield_many_times().await;
        server.process().resume();
        for (key, task) in (1..).zip(in_flight.into_iter().chain(queued)) {
            match task.await {
                Ok(reply) => assert_eq!((reply.limit, reply.remaining), (10 + key, 9 + key)),
                Err(_) => assert!(cancelled.contains(&key)),
            }
        }
        for key in 1..10 {
            let policy = policy(Algorithm::TokenBucket, 10 + key, WINDOW);
            let mut reply = [Reading::default()];
            let peeked = store.apply(Op::Peek, &[charge(key, &policy)], &mut reply).await;
            peeked.expect("the server answers");
            // The first was already in flight: it was charged, although its caller cancelled.
            let charged = u64::from(key == 1 || !cancelled.contains(&key));
            assert_eq!(reply[0].remaining, 10 + key - charged, "key {key}");
        }
    });
}
