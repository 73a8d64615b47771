//! Network faults: delays, lost data, broken and refused connections.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::store::{Op, Store as _};
use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{ConnectionEnd, DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer;

use crate::load::{LoadGenerator, assert_counted_once};
use crate::node::{
    LimiterNode, assert_all_keys_expire, charge, client_connections, exclusive_lock, policy,
    runtime, store, used,
};

/// Disturbs the network of a node under load, and then restores it.
fn run_outage(disturb: impl FnOnce(&FaultProxy)) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&format!("redis://{}", proxy.address()));
    let load = LoadGenerator::start(&node);
    disturb(&proxy);
    node.await_unavailable();
    load.await_fallback_answers();
    proxy.pass();
    node.await_recovered();
    load.await_store_answers();
    let report = load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_counted_once(&node, &report);
    assert_all_keys_expire(&server);
    eventually("one connection is left", || {
        proxy.open_connections() == 1 && client_connections(&server) == 1
    });
    node.shut_down([&server]);
    eventually("none is left", || proxy.open_connections() == 0);
}

#[test]
fn black_hole_falls_back_and_recovers() {
    run_outage(FaultProxy::blackhole);
}

#[test]
fn refused_connections_fall_back_and_recover() {
    run_outage(FaultProxy::refuse);
}

#[test]
fn delay_beyond_deadline_falls_back() {
    run_outage(|proxy| proxy.delay(Duration::from_secs(3), DelayScope::Both));
}

#[test]
fn late_replies_fall_back() {
    run_outage(|proxy| proxy.delay(Duration::from_secs(3), DelayScope::Replies));
}

#[test]
fn lost_replies_fall_back() {
    run_outage(|proxy| proxy.cut_after(0, ConnectionEnd::Reset));
}

/// Each counter is charged once and the reply is lost, so it may be 0 or 1, but not more.
#[test]
fn ambiguous_charge_is_not_retried() {
    const ROUNDS: u64 = 6;
    let server = RedisServer::start();
    let proxy = Arc::new(FaultProxy::start(server.address()));
    let runtime = runtime();
    let _alone = exclusive_lock();
    let store = store(&runtime, &format!("redis://{}", proxy.address()), Duration::from_secs(2));
    let (policy, mut reply) = (policy(), [Reading::default()]);
    for round in 0..ROUNDS {
        proxy.cut_after(0, ConnectionEnd::Fin);
        let one = [charge(&policy, round, 1)];
        // From here on, a retry would succeed.
        let passing = runtime.spawn_blocking({
            let total = proxy.total_connections();
            let proxy = Arc::clone(&proxy);
            move || {
                eventually("it connects again", || proxy.total_connections() > total);
                proxy.pass();
            }
        });
        let answer = runtime.block_on(store.apply(Op::Charge, &one, &mut reply));
        assert!(answer.is_err(), "the reply was lost");
        runtime.block_on(passing).expect("no panic");
        eventually("the store is available again", || store.unavailable_reason().is_none());
    }
    let charged = |round| {
        let mut reply = [Reading::default()];
        let peek = [charge(&policy, round, 1)];
        runtime.block_on(store.apply(Op::Peek, &peek, &mut reply)).expect("the server answers");
        used(&reply[0])
    };
    let counted: Vec<u64> = (0..ROUNDS).map(charged).collect();
    assert!(counted.iter().all(|stands| *stands <= 1), "charged twice: {counted:?}");
    // If the connection broke on the reply to another command, the charge may not have been sent.
    assert!(counted.iter().sum::<u64>() >= ROUNDS / 2, "hardly any was charged: {counted:?}");
}

#[test]
fn truncated_replies_fall_back_and_recover() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&format!("redis://{}", proxy.address()));
    let load = LoadGenerator::start(&node);
    for (bytes, ending) in [
        (1, ConnectionEnd::Fin),
        (7, ConnectionEnd::Reset),
        (150, ConnectionEnd::Fin),
        (901, ConnectionEnd::Reset),
    ] {
        proxy.cut_after(bytes, ending);
        load.await_fallback_answers();
        proxy.pass();
        node.await_recovered();
        load.await_store_answers();
    }
    let report = load.stop(&node, 1);
    let reply = node.event_names();
    assert_eq!(reply, ["lost", "back"].repeat(reply.len() / 2), "outages and recoveries alternate");
    assert!(reply.len() <= 8, "at most one pair per outage: {:?}", node.events());
    assert_counted_once(&node, &report);
    node.shut_down([&server]);
}

#[test]
fn delay_within_deadline_is_no_outage() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let _alone = exclusive_lock();
    let node =
        LimiterNode::start_with(&format!("redis://{}", proxy.address()), Duration::from_secs(1));
    node.await_ready();
    proxy.delay(Duration::from_millis(20), DelayScope::Both);
    let load = LoadGenerator::start(&node);
    load.await_store_answers();
    let report = load.stop(&node, 0);
    assert_eq!((report.open.by_fallback, node.event_names().len()), (0, 0));
    assert_counted_once(&node, &report);
    node.shut_down([&server]);
}
