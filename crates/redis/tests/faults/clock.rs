//! The server's clock jumps by a day, both ways.

use tidegate_core::decision::Verdict;
use tidegate_testkit::redis::RedisServer;

use crate::load::{LoadGenerator, assert_counted_once};
use crate::node::{BURST, LimiterNode, assert_all_keys_expire, exclusive_lock, facts};

const DAY: i64 = 86_400;

#[test]
fn clock_jumps_refill_and_break_nothing() {
    let server = RedisServer::start_with_fake_clock();
    let _alone = exclusive_lock();
    let node = LimiterNode::start_with(&server.url(), std::time::Duration::from_secs(1));
    node.await_ready();
    let admitted = |user: &str| {
        let ask = || node.runtime.block_on(node.limiter.decide(&facts("shared", user), 1));
        (0..2 * BURST).filter(|_| ask().is_allowed()).count()
    };
    assert_eq!(admitted("early"), 10);
    let load = LoadGenerator::start(&node);
    for step in [-DAY, DAY, DAY, -DAY, -DAY] {
        server.step_clock(step);
        load.await_store_answers();
        assert_eq!(admitted("early"), 0, "a clock that jumps by {step} s gives nothing");
        assert_eq!(node.store().unavailable_reason(), None);
    }
    // The waits are those of a clock that never jumped: one request comes back every 30 days.
    let told = node.runtime.block_on(node.limiter.peek(&facts("shared", "early"), None, 1));
    let (_, reading) = told.tightest().unwrap();
    assert_eq!(reading.verdict, Verdict::Deny);
    let wait = reading.numbers.unwrap().reset_after.get() / 1_000_000;
    assert!(wait <= 300 * 86_400, "nobody is locked out for longer than the bucket: {wait} s");
    let heard = load.stop(&node, 0);
    assert_eq!(heard.open.by_fallback, 0, "a jump is no outage");
    assert_counted_once(&node, &heard);
    assert_all_keys_expire(&server);
    node.shut_down([&server]);
}
