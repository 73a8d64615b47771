//! Sentinels replace the primary: the node follows.

use tidegate_testkit::redis::{Sentinels, Server};

use crate::load::Load;
use crate::node::{Node, all_expire, alone};

#[test]
fn the_new_primary_is_found_when_the_old_one_dies() {
    let sentinels = Sentinels::start();
    // The first that is asked says nothing at all, the second is gone.
    let deaf: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    deaf[0].process().pause();
    deaf[1].process().kill();
    let all = deaf.iter().chain(sentinels.sentinels());
    let hosts: Vec<String> = all.map(|each| each.address().to_string()).collect();
    let _alone = alone();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name());
    let node = Node::ready(&url);
    let load = Load::on(&node);
    let old = sentinels.kill_primary();
    node.await_lost();
    load.falls_back();
    let new = sentinels.await_failover(old);
    node.await_back();
    load.goes_on();
    // Replication is asynchronous: what the old one admitted last may be forgotten.
    load.end(&node, 1);
    assert_eq!(node.told(), ["lost", "back"]);
    all_expire(new);
    node.end([new]);
}
