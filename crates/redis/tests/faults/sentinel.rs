//! Sentinels promote a new primary, and the node follows.

use tidegate_testkit::redis::{RedisServer, SentinelGroup};

use crate::load::LoadGenerator;
use crate::node::{LimiterNode, assert_all_keys_expire, exclusive_lock};

#[test]
fn sentinel_failover_finds_new_primary() {
    let sentinels = SentinelGroup::start();
    // The first address does not answer, the second refuses connections.
    let unavailable: Vec<RedisServer> = (0..2).map(|_| RedisServer::start()).collect();
    unavailable[0].process().pause();
    unavailable[1].process().kill();
    let all = unavailable.iter().chain(sentinels.sentinels());
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
    // Replication is asynchronous: the last charges on the old primary may be lost.
    load.stop(&node, 1);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_all_keys_expire(new);
    node.shut_down([new]);
}
