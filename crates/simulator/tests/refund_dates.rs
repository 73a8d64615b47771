//! A refund of leased units is dated by their grant. Dated by the decision, it would give back what
//! has drained since.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod common;

use common::{LeasingNode, complete};
use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Charge, GrantTerms, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_limiter::SeededBug;

const BURST: u64 = 2_000;

const SOURCE: &str = "rules: [{ id: main, key_by: global, limit: 1000/s burst 2000,
    consistency: leased, lease: { ttl: 100ms } }]";

/// What other nodes get who take all that the store lends.
fn grant_all(node: &LeasingNode, key: Fingerprint) -> u64 {
    let rules = node.limiter.rules();
    let policy = rules[0].limit().policy().unwrap();
    let charge = Charge { lent: true, ..Charge::plain(rules[0].key(key), policy, 1) };
    let terms = GrantTerms { most: u32::MAX, leave: 0, part: 1 };
    let mut reading = [Reading::default()];
    complete(node.limiter.store().apply(Op::Grant(terms), &[charge], &mut reading)).unwrap();
    reading[0].granted.into()
}

/// How many units other nodes can spend at one instant, when a node has refunded a request that it
/// decided at the end of a lease.
fn units_of_others(node: &LeasingNode) -> u64 {
    // Four requests are charged at the store, and drain. The fifth makes the node take a lease of
    // 99 units; it is refunded at once, so the lease holds all of them.
    (0..4).for_each(|_| assert!(node.decide(1).is_allowed()));
    node.clock.advance(Micros::from_millis(50));
    let decision = node.decide(62);
    let key = decision.charge_origins().next().unwrap().fingerprint;
    complete(node.limiter.refund_decision(decision));
    assert_eq!(node.limiter.lease_stats().unwrap().units_held, 99);
    // The units of the lease have drained when it is spent.
    node.clock.advance(Micros::new(99_900));
    let decision = node.decide(99);
    assert!(decision.is_allowed());
    let mut units = grant_all(node, key);
    node.clock.advance(Micros::new(100));
    complete(node.limiter.refund_decision(decision));
    // The first grant of the others ends in a moment.
    node.clock.advance(Micros::new(99_800));
    units += grant_all(node, key);
    units
}

#[test]
fn refund_dated_by_grant_keeps_bound() {
    let units = units_of_others(&LeasingNode::new(SOURCE));
    assert_eq!(units, BURST - 1);
}

#[test]
fn refund_dated_by_decision_would_exceed_bound() {
    let LeasingNode { limiter, clock } = LeasingNode::new(SOURCE);
    let limiter = limiter.with_seeded_bug(SeededBug::RefundDatedByDecision);
    let node = LeasingNode { limiter, clock };
    assert_eq!(units_of_others(&node), 2_098);
}
