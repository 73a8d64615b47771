//! Sentinels replace the primary: the node follows.

use tidegate_testkit::redis::{RedisServer, SentinelGroup};

use crate::load::LoadGenerator;
use crate::node::{LimiterNode, assert_all_keys_expire, exclusive_lock};

#[test]
fn sentinel_failover_finds_new_primary() {
    let sentinels = SentinelGroup::start();
    // The first that is asked says nothing at all, the second is gone.
    let deaf: Vec<RedisServer> = (0..2).map(|_| RedisServer::start()).collect();
    deaf[0].process().pause();
    deaf[1].process().kill();
    let all = deaf.iter().chain(sentinels.sentinels());
    let hosts: Vec<String> = all.map(|each| each.address().to_string()).collect();
    let _alone = exclusive_lock();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name());
    let node = LimiterNode::start_ready(&url);
    let load = LoadGenerator::start(&node);
    let old = sentinels.kill_primary();
    node.await_unavailable();
    load.await_fallback_answers();
    let new = sentinels.await_failover(old);
    node.await_recovered();
    load.await_store_answers();
    // Replication is asynchronous: what the old one admitted last may be forgotten.
    load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_all_keys_expire(new);
    node.shut_down([new]);
}
