//! The server replies with errors.

use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::{RedisReply, RedisServer};

use crate::load::{LoadGenerator, USER, assert_counted_once};
use crate::node::{LimiterNode, assert_all_keys_expire, exclusive_lock};

/// Makes the server of a node under load refuse commands for a while. The store reports the reason.
fn run_outage(server: &RedisServer, fail: impl FnOnce(), repair: impl FnOnce(), why: &str) {
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&server.url());
    let load = LoadGenerator::start(&node);
    fail();
    node.await_unavailable();
    eventually("the reason is reported", || {
        node.store().unavailable_reason().is_some_and(|reply| reply.contains(why))
    });
    let before = counter_values(server);
    load.await_fallback_answers();
    assert_eq!(counter_values(server), before, "nothing is charged");
    repair();
    node.await_recovered();
    load.await_store_answers();
    let report = load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_counted_once(&node, &report);
    assert_all_keys_expire(server);
    node.shut_down([server]);
}

/// All counters except those of health probes.
fn counter_values(server: &RedisServer) -> Vec<(String, Vec<u8>)> {
    let keys = server.command(&["KEYS", "tg:[ocs]*"]);
    let mut keys: Vec<String> = keys.items().iter().map(RedisReply::text).collect();
    keys.retain(|key| !key.starts_with("tg:canary"));
    keys.sort();
    let value = |key: &String| server.command(&["GET", key]).text().into_bytes();
    keys.iter().map(|key| (key.clone(), value(key))).collect()
}

#[test]
fn full_memory_falls_back_and_recovers() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let full = || _ = server.command(&["CONFIG", "SET", "maxmemory", "1kb"]);
    let room = || _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    run_outage(&server, full, room, "OOM");
}

#[test]
fn demoted_replica_falls_back_and_recovers() {
    let server = RedisServer::start();
    // A replica of a dead primary keeps its data and is read-only.
    let dead = RedisServer::start();
    dead.stop();
    let port = dead.port().to_string();
    let demote = || _ = server.command(&["REPLICAOF", "127.0.0.1", &port]);
    let promote = || _ = server.command(&["REPLICAOF", "NO", "ONE"]);
    run_outage(&server, demote, promote, "READONLY");
}

#[test]
fn loading_server_falls_back_and_recovers() {
    let server = RedisServer::start();
    server.command(&["DEBUG", "POPULATE", "3000", "filler"]);
    server.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&server.url());
    let load = LoadGenerator::start(&node);
    // In microseconds per key.
    server.command(&["CONFIG", "SET", "key-load-delay", "400"]);
    let mut client = server.connect().unwrap();
    client.set_timeout(std::time::Duration::from_secs(20)).unwrap();
    client.send(&["DEBUG", "RELOAD"]).unwrap();
    eventually("the store reports that the server is loading", || {
        node.store().unavailable_reason().is_some_and(|reply| reply.contains("LOADING"))
    });
    load.await_fallback_answers();
    assert_eq!(client.receive().unwrap().text(), "OK");
    drop(client);
    node.await_recovered();
    load.await_store_answers();
    let report = load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_counted_once(&node, &report);
    assert!(node.used("open", USER) > 0, "the counters survived");
    assert_all_keys_expire(&server);
    node.shut_down([&server]);
}
