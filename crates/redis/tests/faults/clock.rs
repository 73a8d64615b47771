//! The server's clock jumps by a day, forward and back.

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
        let decide = || node.runtime.block_on(node.limiter.decide(&facts("shared", user), 1));
        (0..2 * BURST).filter(|_| decide().is_allowed()).count()
    };
    assert_eq!(admitted("early"), 10);
    let load = LoadGenerator::start(&node);
    for step in [-DAY, DAY, DAY, -DAY, -DAY] {
        server.step_clock(step);
        load.await_store_answers();
        assert_eq!(admitted("early"), 0, "a clock jump of {step} s refills nothing");
        assert_eq!(node.store().unavailable_reason(), None);
    }
    // The waits are those of a clock that never jumped: one request refills every 30 days.
    let reply = node.runtime.block_on(node.limiter.peek(&facts("shared", "early"), None, 1));
    let (_, reading) = reply.tightest().unwrap();
    assert_eq!(reading.verdict, Verdict::Deny);
    let wait = reading.numbers.unwrap().reset_after.get() / 1_000_000;
    assert!(wait <= 300 * 86_400, "the wait is at most the bucket's refill time: {wait} s");
    let report = load.stop(&node, 0);
    assert_eq!(report.open.by_fallback, 0, "a jump is no outage");
    assert_counted_once(&node, &report);
    assert_all_keys_expire(&server);
    node.shut_down([&server]);
}
