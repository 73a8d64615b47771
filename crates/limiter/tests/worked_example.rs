//! The worked example of docs/consistency.md: eight nodes on one counter of 1000 requests/s with a
//! burst of 2000. Its numbers are measured here, in virtual time, for ten seconds after ten others.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::clock;
use common::node::{SharingNode, sharing_nodes};
use tidegate_core::decision::AnsweredBy;
use tidegate_core::time::Micros;
use tidegate_rules::Facts;

const NODES: usize = 8;

/// How long each half of a run takes.
const TEN_SECONDS_MS: u64 = 10_000;

/// What the fleet did in the second half of a run.
#[derive(Debug, Default)]
struct FleetReport {
    offered: u64,
    allowed: u64,
    /// Decisions without the store.
    local: u64,
    /// Calls to the store of each node.
    calls: [u64; NODES],
    /// The most that a node held at any time, and the most that all held together.
    held: u64,
    held_by_all: u64,
    /// What was left by the last answer of each node.
    remaining: [u64; NODES],
}

/// Runs nodes that receive this many requests/s each.
fn run_fleet(consistency: &str, rates: [u64; NODES]) -> FleetReport {
    let rule = format!("{{ id: r, key_by: global, limit: 1000/s burst 2000, {consistency} }}");
    let clock = clock();
    let nodes = sharing_nodes(&format!("rules: [{rule}]"), 8, &clock);
    let (mut due, mut report) = ([0; NODES], FleetReport::default());
    for ms in 0..2 * TEN_SECONDS_MS {
        clock.advance(Micros::from_millis(1));
        if ms == TEN_SECONDS_MS {
            nodes.iter().for_each(|node| _ = node.store.take_recorded_calls());
            report = FleetReport::default();
        }
        for (i, node) in nodes.iter().enumerate() {
            due[i] += rates[i];
            while due[i] >= 1_000 {
                due[i] -= 1_000;
                send_request(node, &mut report, i);
            }
            if ms % 10 == 0 {
                node.sweep();
            }
            report.calls[i] += node.store.take_recorded_calls().len() as u64;
        }
        report.measure_holdings(&nodes);
    }
    report
}

fn send_request(node: &SharingNode, report: &mut FleetReport, i: usize) {
    let decision = node.decide_with_tasks(&Facts::new(), 1);
    let by = decision.answered_by();
    report.offered += 1;
    report.allowed += u64::from(decision.is_allowed());
    report.local += u64::from(matches!(by, AnsweredBy::Lease | AnsweredBy::Async));
    report.remaining[i] = decision.tightest().unwrap().1.numbers.unwrap().remaining;
    node.run_tasks();
}

impl FleetReport {
    fn measure_holdings(&mut self, nodes: &[SharingNode]) {
        let held = nodes.iter().map(|node| {
            let holdings = node.limiter.holdings().unwrap();
            holdings.leased.units + holdings.unflushed.units
        });
        let held: Vec<u64> = held.collect();
        self.held = self.held.max(held.iter().copied().max().unwrap_or(0));
        self.held_by_all = self.held_by_all.max(held.iter().sum());
    }

    /// Calls of a node in a second.
    fn calls_per_second(&self, node: usize) -> u64 {
        self.calls[node].div_ceil(10)
    }
}

const BELOW_LIMIT: [u64; NODES] = [113, 113, 113, 113, 112, 112, 112, 112];
const TWICE_THE_LIMIT: [u64; NODES] = [250; NODES];
const ONE_BUSY_NODE: [u64; NODES] = [480, 60, 60, 60, 60, 60, 60, 60];

#[test]
fn leased_fleet_below_limit_refuses_nobody() {
    let report = run_fleet("consistency: leased", BELOW_LIMIT);
    assert_eq!((report.offered, report.allowed), (9_000, 9_000), "{report:?}");
    assert_eq!(report.local, 9_000, "{report:?}");
    assert!((0..NODES).all(|node| report.calls_per_second(node) <= 17), "{report:?}");
    assert!(report.held <= 8 && report.held_by_all <= 60, "{report:?}");
    assert!(report.remaining.iter().all(|left| (1_800..=1_900).contains(left)), "{report:?}");
}

#[test]
fn busy_leased_node_holds_little_and_asks_rarely() {
    let report = run_fleet("consistency: leased", ONE_BUSY_NODE);
    assert_eq!((report.offered, report.allowed), (9_000, 9_000), "{report:?}");
    assert!(report.held <= 45, "{report:?}");
    // The others have six requests in one lease, and five are enough to lease.
    assert_eq!(report.local, 9_000, "{report:?}");
    assert!(report.calls_per_second(0) <= 14 && report.calls_per_second(1) <= 15, "{report:?}");
}

#[test]
fn leased_fleet_above_limit_uses_all_of_it() {
    let report = run_fleet("consistency: leased", TWICE_THE_LIMIT);
    assert!((9_900..=10_100).contains(&report.allowed), "{report:?}");
    assert!((0..NODES).all(|node| report.calls_per_second(node) <= 20), "{report:?}");
    assert!(report.held <= 11 && report.held_by_all <= 44, "{report:?}");
}

#[test]
fn asynchronous_fleet_asks_ten_times_a_second() {
    for rates in [BELOW_LIMIT, TWICE_THE_LIMIT, ONE_BUSY_NODE] {
        let report = run_fleet("consistency: async", rates);
        assert!((0..NODES).all(|node| report.calls_per_second(node) <= 10), "{report:?}");
        assert!(report.allowed <= 10_300, "{report:?}");
        assert_eq!(report.local, report.offered, "{report:?}");
    }
}
