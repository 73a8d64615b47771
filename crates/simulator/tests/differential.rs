//! One leased node under demand above the limit admits what exact mode on the lending policy
//! admits, less what a lease may hold back: r·ttl + 1.
//!
//! - **Buckets and fixed windows**: never more, and at most r·ttl + 1 less: the node holds half of
//!   it, and the other half refills until its next question. Units that ended unspent add up to 2 %
//!   of a bucket, 1 % of a window.
//! - **Sliding windows** cannot keep that. The store forgets a unit as of its grant, the node spends
//!   it up to a ttl later. So a window may begin earlier than that of exact mode, which forgets it
//!   as of its decision, and the node is ahead; and while the store is short it asks once in half a
//!   ttl, so each window begins up to that much later, which adds up over the windows. A log that is
//!   late misses what is demanded meanwhile, a counter what refills.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod common;

use common::LeasingNode;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::lending::{LeaseBound, LeaseTerms};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Clock as _, Micros};
use tidegate_testkit::state_table::StateTable;

const REQUESTS: usize = 4_000;

/// A limit with the ttl of its leases.
#[derive(Clone, Copy, Debug)]
struct LeasedLimit {
    algorithm: Algorithm,
    requests: u64,
    window_ms: u64,
    burst: u64,
    ttl_ms: u64,
}

/// Demand above the limit. The time between two requests varies by half.
#[derive(Clone, Debug)]
struct Demand {
    percent_of_limit: u64,
    jitter: Vec<u64>,
}

/// What a leased node and exact mode admitted of the same requests.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    exact: u64,
    leased: u64,
    /// How much the leased node was ahead at most.
    lead: u64,
}

impl LeasedLimit {
    fn lending_policy(self) -> Policy {
        let quota = Quota::new(self.requests, Micros::from_millis(self.window_ms));
        let is_bucket = self.algorithm.is_bucket();
        let quota = if is_bucket { quota.with_burst(self.burst) } else { quota };
        let terms = LeaseTerms { ttl: Micros::from_millis(self.ttl_ms), bound: LeaseBound::Exact };
        Policy::new(self.algorithm, quota).unwrap().lending(terms).unwrap()
    }

    fn source(self) -> String {
        let Self { algorithm, requests, window_ms, burst, ttl_ms } = self;
        let burst = if algorithm.is_bucket() { format!(", burst: {burst}") } else { String::new() };
        format!(
            "rules: [{{ id: main, key_by: global, consistency: leased, \
             lease: {{ ttl: {ttl_ms}ms }}, limit: {{ requests: {requests}, \
             window: {window_ms}ms, algorithm: {algorithm}{burst} }} }}]"
        )
    }

    /// r·ttl + 1, rounded up.
    fn held_back(self) -> u64 {
        (self.requests * self.ttl_ms).div_ceil(self.window_ms) + 1
    }

    /// What half a ttl in each window amounts to, of this much.
    fn half_ttl_share(self, admitted: u64) -> u64 {
        admitted * self.ttl_ms / (2 * (self.window_ms + self.ttl_ms))
    }
}

/// Decides the same requests with leases and in exact mode on the lending policy.
fn compare(limit: LeasedLimit, demand: &Demand) -> Comparison {
    let node = LeasingNode::new(&limit.source());
    let policy = limit.lending_policy();
    let key = Key::without_namespace("exact", Fingerprint { hi: 1, lo: 1 });
    let charge = Charge::plain(key, &policy, 1);
    let (mut table, mut result) = (StateTable::default(), Comparison::default());
    let gap = limit.window_ms * 100_000 / limit.requests / demand.percent_of_limit;
    let run_tasks = || {
        while let Some(task) = node.limiter.pop_lease_task() {
            node.run_task(task);
        }
    };
    for jitter in demand.jitter.iter().cycle().take(REQUESTS) {
        node.clock.advance(Micros::new((gap * (50 + jitter) / 100).max(1)));
        node.limiter.sweep_leases();
        run_tasks();
        result.leased += u64::from(node.decide(1).is_allowed());
        run_tasks();
        let reading = table.apply_one(Op::Charge, &charge, node.clock.now());
        result.exact += u64::from(!reading.verdict.refuses());
        result.lead = result.lead.max(result.leased.saturating_sub(result.exact));
    }
    result
}

/// Limits, and demand that makes the node lease: at least 16 requests in a ttl.
fn cases(algorithm: Algorithm) -> impl Strategy<Value = (LeasedLimit, Demand)> {
    let limit = (20_u64..400, 1_u64..11, 1_u64..9, 2_u64..50);
    let limit = limit.prop_map(move |(requests, windows, halves, percent)| {
        let window_ms = 100 * windows;
        let ttl_ms = window_ms * percent / 100;
        // Room for what refills in two ttl, so that a lease is a small part of it.
        let burst = (requests * halves / 2).max(3 * (requests * ttl_ms).div_ceil(window_ms));
        LeasedLimit { algorithm, requests, window_ms, burst, ttl_ms }
    });
    let demand = (150_u64..500, prop::collection::vec(0_u64..101, 200));
    let demand = demand.prop_map(|(percent_of_limit, jitter)| Demand { percent_of_limit, jitter });
    (limit, demand).prop_filter("the node leases", |(limit, demand)| {
        limit.requests * limit.ttl_ms * demand.percent_of_limit >= 1_600 * limit.window_ms
    })
}

fn check(algorithm: Algorithm) {
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() };
    // What sliding windows may be ahead and late is measured, so every run has the same cases.
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&cases(algorithm), |(limit, demand)| {
        let Comparison { exact, leased, lead } = compare(limit, &demand);
        let held_back = limit.held_back();
        let late_share = limit.half_ttl_share(exact);
        let (late, early) = match algorithm {
            Algorithm::SlidingWindowLog => (late_share * demand.percent_of_limit / 100, held_back),
            Algorithm::SlidingWindowCounter => (late_share, 4 * held_back),
            Algorithm::FixedWindow => (exact / 100, 0),
            _ => (exact / 50, 0),
        };
        prop_assert!(lead <= early, "{lead} ahead of exact mode");
        prop_assert!(
            leased + held_back + late >= exact,
            "{leased} admitted, {exact} in exact mode; {held_back} may be held back, {late} late"
        );
        Ok(())
    });
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
    check(Algorithm::LeakyBucket(LeakMode::Police));
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
