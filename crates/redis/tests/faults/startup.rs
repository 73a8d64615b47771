//! The store is unavailable when the node starts.

use tidegate_core::decision::AnsweredBy;
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::RedisServer;

use crate::load::LoadGenerator;
use crate::node::{LimiterNode, assert_all_keys_expire, exclusive_lock, facts};

#[test]
fn node_starts_without_its_server() {
    let server = RedisServer::start();
    server.process().kill();
    let _alone = exclusive_lock();
    let node = LimiterNode::start(&server.url());
    let is_allowed = |kind| {
        let decision = node.runtime.block_on(node.limiter.decide(&facts(kind, "somebody"), 1));
        assert_eq!(decision.answered_by(), AnsweredBy::Fallback);
        decision.is_allowed()
    };
    assert!(is_allowed("open"));
    assert!(!is_allowed("closed"));
    let admitted = (0..30).filter(|_| is_allowed("shared")).count();
    assert_eq!(admitted, 10, "the only node has the whole limit");
    let why = node.await_unavailable();
    assert!(why.contains(&server.address().to_string()) && why.contains("refused"), "{why}");
    server.restart();
    node.await_recovered();
    let load = LoadGenerator::start(&node);
    eventually("local admissions are settled", || !node.limiter.has_unsettled());
    assert_eq!(node.used("shared", "somebody"), 10, "the share's usage was written back");
    load.stop(&node, 0);
    assert_eq!(node.event_names(), ["lost", "back"]);
    assert_all_keys_expire(&server);
    node.shut_down([&server]);
}
