//! The bound of asynchronous rules: nodes on one store, in virtual time, with slow and lost calls.
//! A bucket admits at most 2B + r(T + I + RTT) in any interval T; a window admits at most 2L.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use common::clock;
use common::node::{SharingNode, sharing_nodes};
use proptest::prelude::*;
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::StoreFault;
use tidegate_limiter::{Decision, StoreTask};
use tidegate_rules::Facts;

const STEP: Micros = Micros::from_millis(2);
const INTERVAL_MS: u64 = 50;

/// The demand and the delays of a run.
#[derive(Clone, Copy, Debug)]
struct Load {
    nodes: u32,
    /// Requests of each node in a step.
    per_step: u64,
    /// Between a flush and its answer.
    steps_of_rtt: usize,
    /// One in this many calls does not reach the store; 0 for none.
    lost: usize,
    steps: usize,
}

/// What a run admitted, each with its time.
type Admissions = Vec<(Timestamp, u64)>;

/// The nodes, with the calls and decisions that are under way.
struct Fleet<'a> {
    nodes: &'a [SharingNode],
    tasks: Vec<VecDeque<(usize, StoreTask)>>,
    waiting: Vec<Pin<Box<dyn Future<Output = Decision> + 'a>>>,
    calls: usize,
}

impl<'a> Fleet<'a> {
    fn new(nodes: &'a [SharingNode]) -> Self {
        let tasks = nodes.iter().map(|_| VecDeque::new()).collect();
        Self { nodes, tasks, waiting: Vec::new(), calls: 0 }
    }

    /// Runs the calls that have arrived, and takes new ones.
    fn run_tasks(&mut self, step: usize, load: Load) {
        for (node, tasks) in self.nodes.iter().zip(&mut self.tasks) {
            node.limiter.sweep_leases();
            while tasks.front().is_some_and(|(at, _)| at + load.steps_of_rtt <= step) {
                let Some((_, task)) = tasks.pop_front() else { break };
                self.calls += 1;
                let lost = load.lost > 0 && self.calls.is_multiple_of(load.lost);
                let fault = if lost { StoreFault::Unreachable } else { StoreFault::None };
                node.store.set_fault(fault);
                common::poll_ready(node.limiter.run_lease_task(task));
                node.store.set_fault(StoreFault::None);
            }
            while let Some(task) = node.limiter.pop_lease_task() {
                tasks.push_back((step, task));
            }
        }
    }

    /// Polls the decisions under way, and returns how many requests were admitted.
    fn poll_decisions(&mut self) -> u64 {
        let mut admitted = 0;
        self.waiting.retain_mut(|decision| {
            match decision.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decision) => {
                    admitted += u64::from(decision.is_allowed());
                    false
                }
                Poll::Pending => true,
            }
        });
        admitted
    }
}

/// Runs a fleet and returns what it admitted.
fn run(source: &str, load: Load) -> Admissions {
    let clock: ManualClock = clock();
    let facts: Facts<'_> = [("user_id", "u1")].into_iter().collect();
    let nodes = sharing_nodes(source, load.nodes, &clock);
    let mut fleet = Fleet::new(&nodes);
    let mut admissions = Vec::new();
    for step in 0..load.steps {
        fleet.run_tasks(step, load);
        let mut admitted = fleet.poll_decisions();
        for node in &nodes {
            for _ in 0..load.per_step {
                fleet.waiting.push(Box::pin(node.limiter.decide(&facts, 1)));
                admitted += fleet.poll_decisions();
            }
        }
        admissions.push((clock.now(), admitted));
        clock.advance(STEP);
    }
    admissions
}

/// The most that was admitted in any interval T, less what the rate admits in T.
fn largest_burst(admissions: &Admissions, per_second: u64) -> u64 {
    let (mut level, mut largest) = (0, 0);
    let drained = per_second * STEP.get();
    for (_, admitted) in admissions {
        level += admitted * 1_000_000;
        largest = largest.max(level);
        level = level.saturating_sub(drained);
    }
    largest.div_ceil(1_000_000)
}

/// The most that was admitted in an interval of this many steps.
fn largest_window(admissions: &Admissions, steps: usize) -> u64 {
    let counts: Vec<u64> = admissions.iter().map(|(_, admitted)| *admitted).collect();
    counts.windows(steps).map(|window| window.iter().sum()).max().unwrap_or(0)
}

fn total(admissions: &Admissions) -> u64 {
    admissions.iter().map(|(_, admitted)| admitted).sum()
}

fn loads() -> impl Strategy<Value = Load> {
    (1..=4_u32, 0..6_u64, 0..20_usize, prop_oneof![Just(0), 2..9_usize]).prop_map(
        |(nodes, per_step, steps_of_rtt, lost)| Load {
            nodes,
            per_step,
            steps_of_rtt,
            lost,
            steps: 700,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bucket_stays_within_its_bound(load in loads(), burst in 1..300_u64, rate in 100..900_u64) {
        let source = format!(
            "rules: [{{ id: soft, key_by: user_id, limit: {rate}/s burst {burst}, \
             consistency: async, flush: {INTERVAL_MS}ms }}]"
        );
        let admissions = run(&source, load);
        let rtt_ms = load.steps_of_rtt as u64 * STEP.as_millis_ceil();
        let bound = 2 * burst + (rate * (INTERVAL_MS + rtt_ms)).div_ceil(1_000);
        prop_assert!(largest_burst(&admissions, rate) <= bound);
    }

    #[test]
    fn window_stays_within_its_bound(load in loads(), limit in 1..300_u64, kind in 0..3_usize) {
        let algorithm = ["fixed_window", "sliding_window_log", "sliding_window_counter"][kind];
        let source = format!(
            "rules: [{{ id: soft, key_by: user_id, limit: {{ requests: {limit}, window: 400ms, \
             algorithm: {algorithm} }}, consistency: async, flush: {INTERVAL_MS}ms }}]"
        );
        let admissions = run(&source, load);
        let steps = 200;
        match algorithm {
            "fixed_window" => {
                for window in admissions.chunks(steps) {
                    prop_assert!(total(&window.to_vec()) <= 2 * limit);
                }
            }
            "sliding_window_log" => {
                prop_assert!(largest_window(&admissions, steps) <= 2 * limit);
            }
            // The exact counter admits up to twice the limit in an interval of one window.
            _ => prop_assert!(largest_window(&admissions, steps) <= 3 * limit),
        }
    }
}

#[test]
fn fleet_exceeds_exact_bound_by_at_most_one_limit() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 1000/s burst 200,
        consistency: async, flush: 50ms }]";
    let load = Load { nodes: 4, per_step: 2, steps_of_rtt: 2, lost: 0, steps: 2_000 };
    let admissions = run(source, load);
    let burst = largest_burst(&admissions, 1_000);
    assert!(burst > 200, "the nodes decide by themselves: {burst}");
    let total = total(&admissions);
    assert!((3_800..=4_400).contains(&total), "{total} of 4000 and the burst");
}

#[test]
fn fleet_below_limit_refuses_nobody() {
    let source = "rules: [{ id: soft, key_by: user_id, limit: 2000/s burst 400,
        consistency: async, flush: 50ms }]";
    let load = Load { nodes: 3, per_step: 1, steps_of_rtt: 2, lost: 0, steps: 1_000 };
    assert_eq!(total(&run(source, load)), 3 * 1_000, "75 % of the limit");
}
