//! The server's clock jumps by a day, both ways.

use tidegate_core::decision::Verdict;
use tidegate_testkit::redis::Server;

use crate::load::{Load, counted_once};
use crate::node::{BURST, Node, all_expire, alone, facts};

const DAY: i64 = 86_400;

#[test]
fn a_day_back_refills_nothing_and_a_day_on_breaks_nothing() {
    let server = Server::start_faked();
    let _alone = alone();
    let node = Node::start_with(&server.url(), std::time::Duration::from_secs(1));
    node.await_ready();
    let admitted = |user: &str| {
        let ask = || node.runtime.block_on(node.limiter.decide(&facts("shared", user), 1));
        (0..2 * BURST).filter(|_| ask().is_allowed()).count()
    };
    assert_eq!(admitted("early"), 10);
    let load = Load::on(&node);
    for step in [-DAY, DAY, DAY, -DAY, -DAY] {
        server.step_clock(step);
        load.goes_on();
        assert_eq!(admitted("early"), 0, "a clock that jumps by {step} s gives nothing");
        assert_eq!(node.store().lost(), None);
    }
    // The waits are those of a clock that never jumped: one request comes back every 30 days.
    let told = node.runtime.block_on(node.limiter.peek(&facts("shared", "early"), None, 1));
    let (_, reading) = told.tightest().unwrap();
    assert_eq!(reading.verdict, Verdict::Deny);
    let wait = reading.numbers.unwrap().reset_after.get() / 1_000_000;
    assert!(wait <= 300 * 86_400, "nobody is locked out for longer than the bucket: {wait} s");
    let heard = load.end(&node, 0);
    assert_eq!(heard.open.by_fallback, 0, "a jump is no outage");
    counted_once(&node, &heard);
    all_expire(&server);
    node.end([&server]);
}
