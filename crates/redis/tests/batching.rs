//! Requests that wait travel together: nobody passes who should not, everybody hears his own answer,
//! and the server is called less often than it is asked.

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

/// Tasks on several threads, each with a charge of its own to one store.
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
        let told = join_all(tasks.collect::<Vec<_>>()).await;
        told.into_iter().map(|told| told.expect("a task that ends")).collect()
    })
}

fn count_admitted(told: &[Reading]) -> usize {
    told.iter().filter(|told| told.verdict == Verdict::Allow).count()
}

#[test]
fn concurrent_requests_admit_exactly_the_limit() {
    let server = RedisServer::start();
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        for (cost, limit) in [(1, 1), (1, 100), (1, 255), (1, 256), (3, 100)] {
            let key = key as u64 * 1_000 + cost * 300 + limit;
            let policy = policy(algorithm, limit, WINDOW);
            let clock = ManualClock::new(common::START);
            let mut told = Vec::new();
            let calls = calls_during(&server, "evalsha", || {
                told = charge_concurrently(
                    (0..TASKS).map(|_| (key, policy, cost)),
                    clock,
                    &server.url(),
                );
            });
            assert_eq!(
                count_admitted(&told) as u64,
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
    let told = charge_concurrently(charges, clock, &server.url());
    for (i, told) in told.iter().enumerate() {
        let limit = i as u64 + 1;
        assert_eq!((told.limit, told.remaining), (limit, limit - (i as u64 / 2 + 1)));
    }
}

#[test]
fn lone_request_is_one_call() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    for algorithm in RATE_ALGORITHMS {
        let policy = policy(algorithm, 20, WINDOW);
        let several: Vec<Charge<'_>> = (0..5).map(|key| charge(key, &policy)).collect();
        let calls = calls_during(&server, "evalsha", || {
            for _ in 0..20 {
                stand.apply(Op::Charge, &several);
            }
        });
        assert_eq!(calls, 20, "{algorithm}");
        stand.apply(Op::Reset, &several);
    }
}

#[test]
fn concurrent_requests_share_one_call() {
    let server = RedisServer::start();
    let stand = RedisFixture::with_test_clock(&server.url());
    let policy = policy(Algorithm::TokenBucket, 20, WINDOW);
    let requests: Vec<_> =
        (0..64).map(|i| StoreRequest::single(Op::Charge, charge(i % 4, &policy))).collect();
    let calls = calls_during(&server, "evalsha", || _ = stand.apply_batch(&requests));
    assert_eq!(calls, 1);
}

/// The script told more about a log of warnings than was read, once for each warning that was given:
/// whoever came after it in the same call was told of somebody else's log, and the store gave up.
#[test]
fn log_warnings_do_not_shift_answers() {
    let server = RedisServer::start();
    let stand = RedisFixture::with_test_clock(&server.url());
    let (one, three) = (policy(Algorithm::TokenBucket, 1, WINDOW), log_policy(3));
    let warned = Charge { grace: Some(&three), ..charge(1, &one) };
    let long = log_policy(1_000);
    let mut requests = vec![StoreRequest::single(Op::Charge, warned); 5];
    requests.push(StoreRequest::single(Op::Charge, Charge { cost: 7, ..charge(2, &long) }));
    requests.push(StoreRequest::single(Op::Charge, warned));
    requests.push(StoreRequest::single(Op::Peek, charge(2, &long)));
    let told = stand.apply_batch(&requests);
    let verdicts: Vec<Verdict> = told.iter().map(|told| told[0].verdict).collect();
    let warnings = [Verdict::Allow, Verdict::Warn, Verdict::Warn, Verdict::Warn, Verdict::Deny];
    assert_eq!(verdicts[..5], warnings);
    assert_eq!(verdicts[5..], [Verdict::Allow, Verdict::Deny, Verdict::Allow]);
    assert_eq!(told[7][0].remaining, 993);
}

fn log_policy(requests: u64) -> Policy {
    policy(Algorithm::SlidingWindowLog, requests, WINDOW)
}

/// A request in a task of its own, under way or in line when this returns: on one thread, whoever is
/// ready has had his turn after a few rounds.
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
    let stand = RedisFixture::with_test_clock(&server.url());
    let RedisFixture { store, runtime, .. } = stand;
    let store = Arc::new(store);
    runtime.block_on(async {
        server.process().pause();
        // Two calls are under way, then there is a line.
        let under_way = [spawn_charge(&store, 1).await, spawn_charge(&store, 2).await];
        let mut in_line = Vec::new();
        for key in 3..10 {
            in_line.push(spawn_charge(&store, key).await);
        }
        let gone: [u64; 4] = [1, 3, 5, 9];
        for (key, task) in (1..).zip(under_way.iter().chain(&in_line)) {
            if gone.contains(&key) {
                task.abort();
            }
        }
        yield_many_times().await;
        server.process().resume();
        for (key, task) in (1..).zip(under_way.into_iter().chain(in_line)) {
            match task.await {
                Ok(told) => assert_eq!((told.limit, told.remaining), (10 + key, 9 + key)),
                Err(_) => assert!(gone.contains(&key)),
            }
        }
        for key in 1..10 {
            let policy = policy(Algorithm::TokenBucket, 10 + key, WINDOW);
            let mut told = [Reading::default()];
            let looked = store.apply(Op::Peek, &[charge(key, &policy)], &mut told).await;
            looked.expect("the server answers");
            // The first was under way already: it was charged, and nobody heard it.
            let charged = u64::from(key == 1 || !gone.contains(&key));
            assert_eq!(told[0].remaining, 10 + key - charged, "key {key}");
        }
    });
}
