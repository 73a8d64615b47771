//! One leased node under demand above the limit admits what exact mode on the lending policy
//! admits, less at most what one lease may hold back.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod common;

use common::LeasingNode;
use proptest::prelude::*;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::lending::{LeaseBound, LeaseTerms};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Clock as _, Micros};
use tidegate_testkit::state_table::StateTable;

/// A limit with the ttl of its leases.
#[derive(Clone, Copy, Debug)]
struct LeasedLimit {
    requests: u64,
    window_ms: u64,
    burst: u64,
    ttl_ms: u64,
}

/// Demand above the limit: a request comes every so many microseconds, give or take a half.
#[derive(Clone, Debug)]
struct Demand {
    percent_of_limit: u64,
    jitter: Vec<u64>,
}

impl LeasedLimit {
    fn policy(self, algorithm: Algorithm) -> Policy {
        let window = Micros::from_millis(self.window_ms);
        let quota = Quota::new(self.requests, window);
        let quota = if algorithm.is_bucket() { quota.with_burst(self.burst) } else { quota };
        Policy::new(algorithm, quota).unwrap()
    }

    fn source(self, algorithm: Algorithm) -> String {
        let Self { requests, window_ms, burst, ttl_ms } = self;
        let burst = match algorithm.is_bucket() {
            true => format!(", burst: {burst}"),
            false => String::new(),
        };
        format!(
            "rules: [{{ id: main, key_by: global, consistency: leased, lease: {{ ttl: {ttl_ms}ms }}, \
             limit: {{ requests: {requests}, window: {window_ms}ms, algorithm: {algorithm}{burst} \
             }} }}]"
        )
    }

    /// What refills in one ttl, rounded up.
    fn refilled_in_ttl(self) -> u64 {
        (self.requests * self.ttl_ms).div_ceil(self.window_ms)
    }
}

/// Compares what a leased node and exact mode admit of the same requests.
fn compare(algorithm: Algorithm, limit: LeasedLimit, demand: &Demand) -> Result<(), TestCaseError> {
    let node = LeasingNode::new(&limit.source(algorithm));
    let terms = LeaseTerms { ttl: Micros::from_millis(limit.ttl_ms), bound: LeaseBound::Exact };
    let policy = limit.policy(algorithm).lending(terms).unwrap();
    let charge =
        Charge::plain(Key::without_namespace("exact", Fingerprint { hi: 1, lo: 1 }), &policy, 1);
    let mut table = StateTable::default();
    let gap = limit.window_ms * 100_000 / limit.requests / demand.percent_of_limit;
    let (mut exact, mut leased) = (0_u64, 0_u64);
    for jitter in demand.jitter.iter().cycle().take(4 * demand.jitter.len()) {
        node.clock.advance(Micros::new((gap * (50 + jitter) / 100).max(1)));
        node.limiter.sweep_leases();
        node.run_tasks();
        leased += u64::from(node.decide(1).is_allowed());
        node.run_tasks();
        let reading = table.apply_one(Op::Charge, &charge, node.clock.now());
        exact += u64::from(!reading.verdict.refuses());
        let held_back = limit.refilled_in_ttl() + 1;
        prop_assert!(leased <= exact, "{leased} admitted, {exact} in exact mode");
        prop_assert!(
            leased + held_back >= exact,
            "{leased} admitted, {exact} in exact mode, {held_back} may be held back"
        );
    }
    Ok(())
}

fn limits() -> impl Strategy<Value = LeasedLimit> {
    (4_u64..400, 1_u64..11, 1_u64..9, 1_u64..50).prop_map(|(requests, windows, halves, percent)| {
        let window_ms = 100 * windows;
        let ttl_ms = (window_ms * percent / 100).max(1);
        let refilled = (requests * ttl_ms).div_ceil(window_ms);
        let burst = (requests * halves / 2).max(refilled + 2);
        LeasedLimit { requests, window_ms, burst, ttl_ms }
    })
}

fn demands() -> impl Strategy<Value = Demand> {
    (120_u64..500, prop::collection::vec(0_u64..101, 200))
        .prop_map(|(percent_of_limit, jitter)| Demand { percent_of_limit, jitter })
}

fn check(algorithm: Algorithm) {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result =
        runner.run(&(limits(), demands()), |(limit, demand)| compare(algorithm, limit, &demand));
    if let Err(error) = result {
        panic!("{algorithm}: {error}");
    }
}

#[test]
fn token_bucket_admits_what_exact_mode_does() {
    check(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_admits_what_exact_mode_does() {
    check(Algorithm::LeakyBucket(tidegate_core::policy::LeakMode::Police));
}

#[test]
fn fixed_window_admits_what_exact_mode_does() {
    check(Algorithm::FixedWindow);
}

#[test]
fn sliding_log_admits_what_exact_mode_does() {
    check(Algorithm::SlidingWindowLog);
}

#[test]
fn sliding_counter_admits_what_exact_mode_does() {
    check(Algorithm::SlidingWindowCounter);
}
