//! The server answers, and what it answers is no.

use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::{Reply, Server};

use crate::load::{Load, USER, counted_once};
use crate::node::{Node, all_expire, alone};

/// A node under load, its server made to refuse for a while; the reason is told.
fn outage(server: &Server, ill: impl FnOnce(), well: impl FnOnce(), why: &str) {
    let _alone = alone();
    let node = Node::ready(&server.url());
    let load = Load::on(&node);
    ill();
    node.await_lost();
    eventually("the reason is told", || node.store().lost().is_some_and(|told| told.contains(why)));
    let before = state(server);
    load.falls_back();
    assert_eq!(state(server), before, "nothing is charged");
    well();
    node.await_back();
    load.goes_on();
    let heard = load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"]);
    counted_once(&node, &heard);
    all_expire(server);
    node.end([server]);
}

/// Everything that is counted, except by those who probe.
fn state(server: &Server) -> Vec<(String, Vec<u8>)> {
    let keys = server.command(&["KEYS", "tg:[ocs]*"]);
    let mut keys: Vec<String> = keys.items().iter().map(Reply::text).collect();
    keys.retain(|key| !key.starts_with("tg:canary"));
    keys.sort();
    let value = |key: &String| server.command(&["GET", key]).text().into_bytes();
    keys.iter().map(|key| (key.clone(), value(key))).collect()
}

#[test]
fn its_memory_is_full() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let full = || _ = server.command(&["CONFIG", "SET", "maxmemory", "1kb"]);
    let room = || _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    outage(&server, full, room, "OOM");
}

#[test]
fn it_is_a_replica() {
    let server = Server::start();
    // Of a port where nobody is: it keeps what it has and only reads.
    let gone = Server::start();
    gone.stop();
    let port = gone.port().to_string();
    let demote = || _ = server.command(&["REPLICAOF", "127.0.0.1", &port]);
    let promote = || _ = server.command(&["REPLICAOF", "NO", "ONE"]);
    outage(&server, demote, promote, "READONLY");
}

#[test]
fn it_loads_its_data() {
    let server = Server::start();
    server.command(&["DEBUG", "POPULATE", "3000", "filler"]);
    server.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    let _alone = alone();
    let node = Node::ready(&server.url());
    let load = Load::on(&node);
    // So many microseconds for each key.
    server.command(&["CONFIG", "SET", "key-load-delay", "400"]);
    let mut client = server.connect().unwrap();
    client.set_timeout(std::time::Duration::from_secs(20)).unwrap();
    client.send(&["DEBUG", "RELOAD"]).unwrap();
    eventually("it says that it loads", || {
        node.store().lost().is_some_and(|told| told.contains("LOADING"))
    });
    load.falls_back();
    assert_eq!(client.receive().unwrap().text(), "OK");
    drop(client);
    node.await_back();
    load.goes_on();
    let heard = load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"]);
    counted_once(&node, &heard);
    assert!(node.used("open", USER) > 0, "what it had, it has");
    all_expire(&server);
    node.end([&server]);
}
