//! The node count: nodes with a recent heartbeat.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::Store as _;
use tidegate_redis::RedisStore;
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::RedisServer;

use crate::node::{runtime, store};

#[test]
fn node_count_drops_after_leave_or_silence() {
    let server = RedisServer::start();
    let runtime = runtime();
    let start = || store(&runtime, &server.url(), Duration::from_secs(1));
    let mut stores: Vec<Arc<RedisStore>> = (0..4).map(|_| start()).collect();
    let all_say = |stores: &[Arc<RedisStore>], nodes: u32| {
        eventually(&format!("all say {nodes}"), || {
            stores.iter().all(|one| one.node_count() == nodes)
        });
    };
    all_say(&stores, 4);
    let leaving = stores.pop().unwrap();
    runtime.block_on(leaving.leave());
    assert_eq!(leaving.node_count(), 3, "only the other nodes are counted");
    all_say(&stores, 3);
    // A leaving node may still run for a while to finish its work; it is not counted again.
    let later = start();
    all_say(&[Arc::clone(&later)], 4);
    drop(leaving);
    // These nodes stop without announcing it.
    drop(later);
    stores.pop();
    all_say(&stores, 2);
    drop(stores);
    eventually("the list of nodes expires too", || {
        server.command(&["EXISTS", "tg:nodes"]).integer() == 0
    });
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
}
