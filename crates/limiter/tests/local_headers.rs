//! What answers say about leased and asynchronous counters, as a client of one node sees it: the
//! remaining quota of a window grows only by refunds, and a refused request passes after its
//! `retry_after`.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::clock;
use common::node::{SharingNode, sharing_nodes};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::Algorithm;
use tidegate_core::policy::Algorithm::{FixedWindow, SlidingWindowCounter, SlidingWindowLog};
use tidegate_core::time::{ManualClock, Micros};
use tidegate_limiter::Decision;
use tidegate_rules::Facts;
use tidegate_testkit::property::{cases, check_property};

const MODES: [&str; 2] =
    ["consistency: leased, lease: { ttl: 100ms }", "consistency: async, flush: 100ms"];

/// How often the server sweeps.
const SWEEP: Micros = Micros::from_millis(10);

/// One step of a history of two nodes.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Requests of this cost arrive at a node, one after the other.
    Requests { node: usize, cost: u32, count: usize },
    /// Time passes, with sweeps.
    Wait(u64),
    /// Time passes before the calls to the store are made, on one node.
    Delay(u64),
}

struct NodePair {
    nodes: Vec<SharingNode>,
    clock: ManualClock,
}

impl NodePair {
    fn new(algorithm: Algorithm, mode: &str, requests: u64, window: &str) -> Self {
        let limit = format!("{{ requests: {requests}, window: {window}, algorithm: {algorithm} }}");
        let rule = format!("rules: [{{ id: r, key_by: global, limit: {limit}, {mode} }}]");
        let clock = clock();
        Self { nodes: sharing_nodes(&rule, 2, &clock), clock }
    }

    fn decide(&self, node: usize, cost: u32) -> Decision {
        self.nodes[node].decide_with_tasks(&Facts::new(), cost)
    }

    fn run_tasks(&self) {
        self.nodes.iter().for_each(SharingNode::run_tasks);
    }

    /// Lets time pass, with sweeps every 10 ms or at least fifty of them.
    fn wait(&self, span: Micros) {
        let step = (span.get() / 50).max(SWEEP.get());
        let mut left = span.get();
        while left > 0 {
            let part = left.min(step);
            self.clock.advance(Micros::new(part));
            left -= part;
            self.nodes.iter().for_each(SharingNode::sweep);
        }
    }

    /// Units that nodes have returned to the store.
    fn returned(&self) -> u64 {
        self.nodes.iter().map(|node| node.limiter.lease_stats().unwrap().units_returned).sum()
    }
}

/// Every unit that the store granted was spent, returned or lost, or is held.
fn check_units(node: &SharingNode) -> Result<(), TestCaseError> {
    let stats = node.limiter.lease_stats().unwrap();
    let used = stats.units_spent + stats.units_returned + stats.units_expired + stats.units_held;
    prop_assert_eq!(used, stats.units_granted, "{:?}", stats);
    Ok(())
}

fn numbers(decision: &Decision) -> Reading {
    decision.tightest().unwrap().1.numbers.unwrap()
}

/// What answered, and the numbers.
fn summary(decision: &Decision) -> String {
    format!("{} {:?}", decision.answered_by().name(), numbers(decision))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let requests = (0_usize..2, prop_oneof![3 => Just(1), 1 => 2_u32..5], 1_usize..16);
    let step = prop_oneof![
        4 => requests.prop_map(|(node, cost, count)| Step::Requests { node, cost, count }),
        2 => (0_u64..130).prop_map(Step::Wait),
        1 => (0_u64..60).prop_map(Step::Delay),
    ];
    prop::collection::vec(step, 1..40)
}

/// What one node has answered.
#[derive(Clone, Copy)]
struct PastAnswers {
    /// The least `remaining`, less what had been returned until the store's last answer.
    lowest: i128,
    /// Units returned until the store's last answer to this node.
    returned: u64,
}

#[test]
fn remaining_of_window_grows_only_by_refunds() {
    for algorithm in [FixedWindow, SlidingWindowLog, SlidingWindowCounter] {
        for mode in MODES {
            // No window ends before the history does.
            let strategy = (5_u64..300, steps());
            let name = format!("remaining_{algorithm}_{}", &mode[13..19].replace(',', ""));
            check_property(&name, cases() / 200, &strategy, |(requests, steps)| {
                let pair = NodePair::new(algorithm, mode, requests, "10s");
                let mut past = [PastAnswers { lowest: i128::MAX, returned: 0 }; 2];
                for step in steps {
                    match step {
                        Step::Wait(millis) => pair.wait(Micros::from_millis(millis)),
                        Step::Delay(millis) => pair.clock.advance(Micros::from_millis(millis)),
                        Step::Requests { node, cost, count } => {
                            for _ in 0..count {
                                check_remaining(&pair, node, cost, &mut past[node])?;
                            }
                        }
                    }
                }
                Ok(())
            });
        }
    }
}

fn check_remaining(
    pair: &NodePair,
    node: usize,
    cost: u32,
    past: &mut PastAnswers,
) -> Result<(), TestCaseError> {
    let before = pair.returned();
    pair.nodes[node].store.take_recorded_calls();
    let decision = pair.decide(node, cost);
    if !pair.nodes[node].store.take_recorded_calls().is_empty() {
        past.returned = before;
    }
    let remaining = i128::from(numbers(&decision).remaining);
    let most = past.lowest.saturating_add(pair.returned().into());
    prop_assert!(remaining <= most, "{remaining} left, {most} before: {}", summary(&decision));
    past.lowest = past.lowest.min(remaining - i128::from(past.returned));
    pair.run_tasks();
    check_units(&pair.nodes[node])
}

/// The other node is idle. After the wait of a refusal the same request passes.
#[test]
fn retry_after_of_refusal_is_sound() {
    for algorithm in Algorithm::ALL {
        for mode in MODES {
            let strategy = (prop_oneof![12_u64..40, 12_u64..2_000], steps(), 1_usize..8);
            let name = format!("retry_{algorithm}_{}", &mode[13..19].replace(',', ""));
            check_property(&name, cases() / 200, &strategy, |(requests, steps, which)| {
                let pair = NodePair::new(algorithm, mode, requests, "1s");
                let mut refusals = 0;
                for step in steps {
                    let (cost, count) = match step {
                        Step::Requests { cost, count, .. } => (cost, count),
                        Step::Wait(millis) | Step::Delay(millis) => {
                            pair.wait(Micros::from_millis(millis));
                            check_units(&pair.nodes[0])?;
                            continue;
                        }
                    };
                    for _ in 0..count * 4 {
                        let decision = pair.decide(0, cost);
                        let Retry::After(wait) = numbers(&decision).retry else { continue };
                        refusals += 1;
                        if refusals < which {
                            continue;
                        }
                        pair.wait(wait);
                        let retried = pair.decide(0, cost);
                        prop_assert!(
                            retried.is_allowed(),
                            "{}, then after {wait} {}",
                            summary(&decision),
                            summary(&retried)
                        );
                        return Ok(());
                    }
                }
                Ok(())
            });
        }
    }
}
