//! Nodes on record: each is there once, as it last said, until it leaves or nobody has heard of it for long.

use tidegate_control::{Node, Repository};
use tidegate_core::time::Timestamp;

use crate::common::{NOON, Place, on_both};

on_both!(each_is_there_once_until_it_leaves_or_is_forgotten);

fn node(name: &str, version: u64, second: u64) -> Node {
    let seen = Timestamp::from_micros(NOON.as_micros() + second * 1_000_000);
    Node { name: name.to_owned(), version, seen }
}

async fn all(office: &dyn Repository) -> Vec<Node> {
    office.nodes().await.expect("nodes")
}

async fn each_is_there_once_until_it_leaves_or_is_forgotten(place: Place) {
    let office = place.open().await;
    assert_eq!(all(&*office).await, []);
    let long_ago = node("", 0, 0).seen;
    let hostile = "n'; DROP TABLE rule_node; --\u{202e}:1";
    for said in [node("b:2", 3, 1), node(hostile, 4, 2), node("b:2", 5, 9)] {
        office.check_in(&said, long_ago).await.expect("a node");
    }
    let elsewhere = place.open().await;
    assert_eq!(all(&*elsewhere).await, [node("b:2", 5, 9), node(hostile, 4, 2)]);
    office.check_in(&node("a:1", 5, 10), node("", 0, 3).seen).await.expect("a node");
    assert_eq!(all(&*elsewhere).await, [node("a:1", 5, 10), node("b:2", 5, 9)]);
    elsewhere.leave("b:2").await.expect("it left");
    assert_eq!(all(&*office).await, [node("a:1", 5, 10)]);
}
