//! More requests than the server can answer, and callers that cancel.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::store::{Op, Store as _};
use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer;
use tokio::time::Instant;

use crate::node::{charge, client_connections, exclusive_lock, policy, runtime, store, used};

/// Requests while the server does not answer.
const REQUESTS: u64 = 50_000;

#[test]
fn overload_on_stopped_server_leaks_nothing() {
    let server = RedisServer::start();
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &server.url(), Duration::from_millis(300));
    let idle = runtime.metrics().num_alive_tasks();
    server.process().pause();
    let begun = Instant::now();
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let store = Arc::clone(&store);
            runtime.spawn(async move {
                let (policy, mut reply) = (policy(), [Reading::default()]);
                let charges = [charge(&policy, number % 100, 1)];
                store.apply(Op::Charge, &charges, &mut reply).await.unwrap_err().reason
            })
        })
        .collect();
    let reasons: Vec<String> =
        requests.into_iter().map(|one| runtime.block_on(one).expect("no panic")).collect();
    assert!(begun.elapsed() < Duration::from_secs(5), "all fail quickly");
    let rejected = reasons.iter().filter(|why| why.contains("queue is full")).count();
    assert!(rejected > 0, "the queue is bounded: {:?}", reasons.last());
    eventually("no task works on them", || runtime.metrics().num_alive_tasks() <= idle);
    server.process().resume();
    eventually("the store is available again", || store.unavailable_reason().is_none());
    let policy = policy();
    let counted: u64 = (0..100)
        .map(|key| {
            let mut reply = [Reading::default()];
            let peek = [charge(&policy, key, 1)];
            runtime.block_on(store.apply(Op::Peek, &peek, &mut reply)).unwrap();
            used(&reply[0])
        })
        .sum();
    // At most two calls in flight, of 64 requests each, until five in a row time out.
    assert!(counted <= 64 * 8, "{counted} were charged after their deadline");
    drop(store);
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
    eventually("no connection is left", || client_connections(&server) == 0);
}

/// Each caller's counter has a distinct range, so that the reply to another caller is detected.
#[test]
fn cancelled_callers_take_no_other_answer() {
    const CALLERS: u64 = 12;
    const ROUNDS: u64 = 60;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &format!("redis://{}", proxy.address()), Duration::from_secs(2));
    proxy.delay(Duration::from_millis(4), DelayScope::Replies);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = Arc::clone(&store);
            runtime.spawn(async move {
                let (policy, mut reply) = (policy(), [Reading::default()]);
                let base = (caller + 1) * 1_000;
                let first = [charge(&policy, caller, base)];
                store.apply(Op::Charge, &first, &mut reply).await.unwrap();
                let (mut sent, mut received, mut cancelled) = (0, 0, 0);
                for round in 0..ROUNDS {
                    let one = [charge(&policy, caller, 1)];
                    let request = store.apply(Op::Charge, &one, &mut reply);
                    // Cancels before the request is sent, while it is in flight, or not at all.
                    let patience = Duration::from_micros((caller * 797 + round * 1_301) % 12_000);
                    let answered = tokio::time::timeout(patience, request).await;
                    sent += 1;
                    match answered {
                        Ok(answered) => {
                            answered.unwrap();
                            received += 1;
                            let stands = used(&reply[0]);
                            assert!(
                                (base + received..=base + sent).contains(&stands),
                                "caller {caller} got {stands}"
                            );
                        }
                        Err(_) => cancelled += 1,
                    }
                }
                (received, cancelled)
            })
        })
        .collect();
    let (mut received, mut cancelled) = (0, 0);
    for caller in callers {
        let (answered, gave_up) = runtime.block_on(caller).unwrap();
        (received, cancelled) = (received + answered, cancelled + gave_up);
    }
    assert!(received > 100 && cancelled > 100, "{received} answered, {cancelled} cancelled");
    assert_eq!(store.unavailable_reason(), None);
    assert_eq!(proxy.total_connections(), 1, "one connection serves all callers");
}
