//! More callers than a server answers, and callers who go away.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::store::{Op, Store as _};
use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer;
use tokio::time::Instant;

use crate::node::{charge, client_connections, exclusive_lock, policy, runtime, store, used};

/// Requests while nothing is answered.
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
    let asked: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let store = Arc::clone(&store);
            runtime.spawn(async move {
                let (policy, mut told) = (policy(), [Reading::default()]);
                let asked = [charge(&policy, number % 100, 1)];
                store.apply(Op::Charge, &asked, &mut told).await.unwrap_err().reason
            })
        })
        .collect();
    let reasons: Vec<String> =
        asked.into_iter().map(|one| runtime.block_on(one).expect("no panic")).collect();
    assert!(begun.elapsed() < Duration::from_secs(5), "all are answered soon");
    let turned_away = reasons.iter().filter(|why| why.contains("wait already")).count();
    assert!(turned_away > 0, "no more wait than there is room for: {:?}", reasons.last());
    eventually("nobody works on it any more", || runtime.metrics().num_alive_tasks() <= idle);
    server.process().resume();
    eventually("it is asked again", || store.unavailable_reason().is_none());
    let policy = policy();
    let counted: u64 = (0..100)
        .map(|key| {
            let mut told = [Reading::default()];
            let peek = [charge(&policy, key, 1)];
            runtime.block_on(store.apply(Op::Peek, &peek, &mut told)).unwrap();
            used(&told[0])
        })
        .sum();
    // Two calls at once, of 64 requests each, until five in a row were not answered.
    assert!(counted <= 64 * 8, "{counted} were done long after: nothing is sent late");
    drop(store);
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
    eventually("no connection is left", || client_connections(&server) == 0);
}

/// Each caller's counter stands in a range of its own, so that another's answer is known at once.
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
                let (policy, mut told) = (policy(), [Reading::default()]);
                let base = (caller + 1) * 1_000;
                let first = [charge(&policy, caller, base)];
                store.apply(Op::Charge, &first, &mut told).await.unwrap();
                let (mut sent, mut heard, mut left) = (0, 0, 0);
                for round in 0..ROUNDS {
                    let one = [charge(&policy, caller, 1)];
                    let asked = store.apply(Op::Charge, &one, &mut told);
                    // Before it is sent, while it is under way, or not at all.
                    let patience = Duration::from_micros((caller * 797 + round * 1_301) % 12_000);
                    let answered = tokio::time::timeout(patience, asked).await;
                    sent += 1;
                    match answered {
                        Ok(answered) => {
                            answered.unwrap();
                            heard += 1;
                            let stands = used(&told[0]);
                            assert!(
                                (base + heard..=base + sent).contains(&stands),
                                "caller {caller} is told {stands}"
                            );
                        }
                        Err(_) => left += 1,
                    }
                }
                (heard, left)
            })
        })
        .collect();
    let (mut heard, mut left) = (0, 0);
    for caller in callers {
        let (stayed, went) = runtime.block_on(caller).unwrap();
        (heard, left) = (heard + stayed, left + went);
    }
    assert!(heard > 100 && left > 100, "{heard} stayed, {left} went away");
    assert_eq!(store.unavailable_reason(), None);
    assert_eq!(proxy.total_connections(), 1, "all over one connection");
}
