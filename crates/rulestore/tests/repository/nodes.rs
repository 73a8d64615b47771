//! Node heartbeats: each node is listed once, with its latest heartbeat, until it leaves or
//! expires.

use tidegate_core::time::Timestamp;
use tidegate_rulestore::{FleetNode, Repository};

use crate::common::{NOON, RepositoryFixture, test_on_both_databases};

test_on_both_databases!(node_is_listed_until_removed_or_expired);

fn node(name: &str, version: u64, second: u64) -> FleetNode {
    let seen = Timestamp::from_micros(NOON.as_micros() + second * 1_000_000);
    FleetNode { name: name.to_owned(), version, last_seen: seen }
}

async fn fetch_nodes(repository: &dyn Repository) -> Vec<FleetNode> {
    repository.nodes().await.expect("nodes")
}

async fn node_is_listed_until_removed_or_expired(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    assert_eq!(fetch_nodes(&*repository).await, []);
    let long_ago = node("", 0, 0).last_seen;
    let hostile = "n'; DROP TABLE rule_node; --\u{202e}:1";
    for heartbeat in [node("b:2", 3, 1), node(hostile, 4, 2), node("b:2", 5, 9)] {
        repository.record_heartbeat(&heartbeat, long_ago).await.expect("a node");
    }
    let elsewhere = fixture.open().await;
    assert_eq!(fetch_nodes(&*elsewhere).await, [node("b:2", 5, 9), node(hostile, 4, 2)]);
    repository
        .record_heartbeat(&node("a:1", 5, 10), node("", 0, 3).last_seen)
        .await
        .expect("a node");
    assert_eq!(fetch_nodes(&*elsewhere).await, [node("a:1", 5, 10), node("b:2", 5, 9)]);
    elsewhere.remove_node("b:2").await.expect("it left");
    assert_eq!(fetch_nodes(&*repository).await, [node("a:1", 5, 10)]);
}
