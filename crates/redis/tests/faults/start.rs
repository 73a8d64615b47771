//! The store is not there when the node starts.

use tidegate_core::decision::AnsweredBy;
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::Server;

use crate::load::Load;
use crate::node::{Node, all_expire, alone, facts};

#[test]
fn everybody_is_answered_at_once_and_the_server_is_found_when_it_comes() {
    let server = Server::start();
    server.process().kill();
    let _alone = alone();
    let node = Node::start(&server.url());
    let told = |kind| {
        let decision = node.runtime.block_on(node.limiter.decide(&facts(kind, "somebody"), 1));
        assert_eq!(decision.answered_by(), AnsweredBy::Fallback);
        decision.is_allowed()
    };
    assert!(told("open"));
    assert!(!told("closed"));
    assert_eq!((0..30).filter(|_| told("shared")).count(), 10, "the only node has all of it");
    let why = node.await_lost();
    assert!(why.contains(&server.address().to_string()) && why.contains("refused"), "{why}");
    server.restart();
    node.await_back();
    let load = Load::on(&node);
    eventually("what was admitted meanwhile is known", || !node.limiter.owes());
    assert_eq!(node.used("shared", "somebody"), 10, "the share's usage was written back");
    load.end(&node, 0);
    assert_eq!(node.told(), ["lost", "back"]);
    all_expire(&server);
    node.end([&server]);
}
