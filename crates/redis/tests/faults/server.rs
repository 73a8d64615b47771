//! The server dies, stops, sleeps or throws everybody out.

use std::time::Duration;

use tidegate_testkit::redis::Server;

use crate::load::{Load, counted_once};
use crate::node::{Node, all_expire, alone};

/// A node under load, its server made ill and then well again.
fn outage(server: &Server, ill: impl FnOnce(), well: impl FnOnce(), forgets: bool) {
    let _alone = alone();
    let node = Node::ready(&server.url());
    let load = Load::on(&node);
    ill();
    node.await_lost();
    load.falls_back();
    well();
    node.await_back();
    load.goes_on();
    let heard = load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"]);
    if !forgets {
        counted_once(&node, &heard);
    }
    all_expire(server);
    node.end([server]);
}

#[test]
fn it_is_killed_and_comes_back_with_nothing() {
    let server = Server::start();
    outage(&server, || server.process().kill(), || server.restart(), true);
}

#[test]
fn it_stops_and_goes_on() {
    let server = Server::start();
    outage(&server, || server.process().pause(), || server.process().resume(), false);
}

#[test]
fn writes_are_paused() {
    let server = Server::start();
    let pause = || {
        server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    };
    let go_on = || {
        server.command(&["CLIENT", "UNPAUSE"]);
    };
    outage(&server, pause, go_on, false);
}

#[test]
fn it_sleeps() {
    let server = Server::start();
    let mut client = server.connect().unwrap();
    let sleep = move || client.send(&["DEBUG", "SLEEP", "1.5"]).unwrap();
    let wake = || _ = server.command(&["PING"]);
    outage(&server, sleep, wake, false);
}

#[test]
fn everybody_is_thrown_out_again_and_again() {
    let server = Server::start();
    let _alone = alone();
    let node = Node::ready(&server.url());
    let load = Load::on(&node);
    for _ in 0..3 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        load.goes_on();
        node.await_back();
    }
    let heard = load.end(&node, 1);
    let told = node.told();
    assert_eq!(told, ["lost", "back"].repeat(3));
    counted_once(&node, &heard);
    node.end([&server]);
}

#[test]
fn its_scripts_are_thrown_away_without_a_pause() {
    let server = Server::start();
    let _alone = alone();
    let node = Node::start_with(&server.url(), Duration::from_secs(1));
    node.await_ready();
    let load = Load::on(&node);
    let mut client = server.connect().unwrap();
    for _ in 0..300 {
        client.command(&["SCRIPT", "FLUSH"]).unwrap();
    }
    drop(client);
    load.goes_on();
    let heard = load.end(&node, 0);
    assert_eq!(heard.open.by_fallback, 0, "that no script is there is nobody's outage");
    assert_eq!(node.told(), Vec::<&str>::new());
    counted_once(&node, &heard);
    all_expire(&server);
    node.end([&server]);
}
