//! The server dies, stops, blocks or closes all connections.

use std::time::Duration;

use tidegate_testkit::redis::RedisServer;

use crate::load::{LoadGenerator, assert_counted_once};
use crate::node::{LimiterNode, assert_all_keys_expire, exclusive_lock};

/// Makes the server of a node under load fail, and then repairs it.
fn run_outage(server: &RedisServer, fail: impl FnOnce(), repair: impl FnOnce(), loses_data: bool) {
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&server.url());
    let load = LoadGenerator::start(&node);
    fail();
    node.await_unavailable();
    load.await_fallback_answers();
    repair();
    node.await_recovered();
    load.await_store_answers();
    let report = load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    if !loses_data {
        assert_counted_once(&node, &report);
    }
    assert_all_keys_expire(server);
    node.shut_down([server]);
}

#[test]
fn killed_server_restarts_empty() {
    let server = RedisServer::start();
    run_outage(&server, || server.process().kill(), || server.restart(), true);
}

#[test]
fn stopped_server_falls_back_and_recovers() {
    let server = RedisServer::start();
    run_outage(&server, || server.process().pause(), || server.process().resume(), false);
}

#[test]
fn paused_writes_fall_back_and_recover() {
    let server = RedisServer::start();
    let pause = || {
        server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    };
    let go_on = || {
        server.command(&["CLIENT", "UNPAUSE"]);
    };
    run_outage(&server, pause, go_on, false);
}

#[test]
fn blocked_server_falls_back_and_recovers() {
    let server = RedisServer::start();
    let mut client = server.connect().unwrap();
    let sleep = move || client.send(&["DEBUG", "SLEEP", "1.5"]).unwrap();
    let wake = || _ = server.command(&["PING"]);
    run_outage(&server, sleep, wake, false);
}

#[test]
fn killed_connections_reconnect_each_time() {
    let server = RedisServer::start();
    let _alone = exclusive_lock();
    let node = LimiterNode::start_ready(&server.url());
    let load = LoadGenerator::start(&node);
    for _ in 0..3 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        load.await_store_answers();
        node.await_recovered();
    }
    let report = load.stop(&node, 1);
    let reply = node.event_names();
    assert_eq!(reply, ["lost", "back"].repeat(3));
    assert_counted_once(&node, &report);
    node.shut_down([&server]);
}

#[test]
fn flushed_scripts_cause_no_outage() {
    let server = RedisServer::start();
    let _alone = exclusive_lock();
    let node = LimiterNode::start_with(&server.url(), Duration::from_secs(1));
    node.await_ready();
    let load = LoadGenerator::start(&node);
    let mut client = server.connect().unwrap();
    for _ in 0..300 {
        client.command(&["SCRIPT", "FLUSH"]).unwrap();
    }
    drop(client);
    load.await_store_answers();
    let report = load.stop(&node, 0);
    assert_eq!(report.open.by_fallback, 0, "a missing script is no outage");
    assert_eq!(node.event_names(), Vec::<&str>::new());
    assert_counted_once(&node, &report);
    assert_all_keys_expire(&server);
    node.shut_down([&server]);
}
