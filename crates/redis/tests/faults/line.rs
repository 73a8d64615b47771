//! The line to the server delays, swallows, cuts or refuses.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::decision::Reading;
use tidegate_core::store::{Op, Store as _};
use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{Delayed, Ending, Proxy};
use tidegate_testkit::redis::Server;

use crate::load::{Load, counted_once};
use crate::node::{Node, all_expire, alone, charge, clients, policy, runtime, store, used};

/// A node under load, whose line is disturbed and then good again.
fn outage(disturb: impl FnOnce(&Proxy)) {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let _alone = alone();
    let node = Node::ready(&format!("redis://{}", proxy.address()));
    let load = Load::on(&node);
    disturb(&proxy);
    node.await_lost();
    load.falls_back();
    proxy.pass();
    node.await_back();
    load.goes_on();
    let heard = load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"]);
    counted_once(&node, &heard);
    all_expire(&server);
    eventually("one connection is left", || proxy.open_connections() == 1 && clients(&server) == 1);
    node.end([&server]);
    eventually("none is left", || proxy.open_connections() == 0);
}

#[test]
fn it_swallows_everything() {
    outage(Proxy::blackhole);
}

#[test]
fn it_refuses() {
    outage(Proxy::refuse);
}

#[test]
fn it_delays_beyond_the_deadline() {
    outage(|proxy| proxy.delay(Duration::from_secs(3), Delayed::Both));
}

#[test]
fn answers_come_when_nobody_waits_any_more() {
    outage(|proxy| proxy.delay(Duration::from_secs(3), Delayed::Replies));
}

#[test]
fn every_answer_is_lost_though_the_work_was_done() {
    outage(|proxy| proxy.cut_after(0, Ending::Reset));
}

/// Each counter is asked for once, and the answer is lost: it may stand at 0 or 1.
#[test]
fn what_may_have_been_done_is_not_done_again() {
    const ROUNDS: u64 = 6;
    let server = Server::start();
    let proxy = Arc::new(Proxy::before(server.address()));
    let runtime = runtime();
    let _alone = alone();
    let store = store(&runtime, &format!("redis://{}", proxy.address()), Duration::from_secs(2));
    let (policy, mut told) = (policy(), [Reading::default()]);
    for round in 0..ROUNDS {
        proxy.cut_after(0, Ending::Fin);
        let one = [charge(&policy, round, 1)];
        // From here on whoever tries again would succeed.
        let passing = runtime.spawn_blocking({
            let total = proxy.total_connections();
            let proxy = Arc::clone(&proxy);
            move || {
                eventually("it connects again", || proxy.total_connections() > total);
                proxy.pass();
            }
        });
        let answer = runtime.block_on(store.apply(Op::Charge, &one, &mut told));
        assert!(answer.is_err(), "its answer was lost");
        runtime.block_on(passing).expect("no panic");
        eventually("it is well again", || store.lost().is_none());
    }
    let stand = |round| {
        let mut told = [Reading::default()];
        let peek = [charge(&policy, round, 1)];
        runtime.block_on(store.apply(Op::Peek, &peek, &mut told)).expect("the server answers");
        used(&told[0])
    };
    let counted: Vec<u64> = (0..ROUNDS).map(stand).collect();
    assert!(counted.iter().all(|stands| *stands <= 1), "done again: {counted:?}");
    // Where the lost answer was somebody else's, it may not have been sent.
    assert!(counted.iter().sum::<u64>() >= ROUNDS / 2, "hardly any was done: {counted:?}");
}

#[test]
fn answers_are_cut_in_the_middle() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let _alone = alone();
    let node = Node::ready(&format!("redis://{}", proxy.address()));
    let load = Load::on(&node);
    for (bytes, ending) in
        [(1, Ending::Fin), (7, Ending::Reset), (150, Ending::Fin), (901, Ending::Reset)]
    {
        proxy.cut_after(bytes, ending);
        load.falls_back();
        proxy.pass();
        node.await_back();
        load.goes_on();
    }
    let heard = load.end(&node, 1);
    let told = node.told();
    assert_eq!(told, ["lost", "back"].repeat(told.len() / 2), "by turns");
    assert!(told.len() <= 8, "once an outage: {:?}", node.events());
    counted_once(&node, &heard);
    node.end([&server]);
}

#[test]
fn a_delay_within_the_deadline_is_no_outage() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let _alone = alone();
    let node = Node::start_with(&format!("redis://{}", proxy.address()), Duration::from_secs(1));
    node.await_ready();
    proxy.delay(Duration::from_millis(20), Delayed::Both);
    let load = Load::on(&node);
    load.goes_on();
    let heard = load.end(&node, 0);
    assert_eq!((heard.open.by_fallback, node.told().len()), (0, 0));
    counted_once(&node, &heard);
    node.end([&server]);
}
