//! Fleets under random outages: what is admitted over any interval stays within its bound.
//!
//! `S` is the sum of the shares, which is at most the limit `B` (unless there are more nodes than
//! requests), and `k` is the number of outages.
//!
//! - Whatever fails, is lost or is settled late: the store and the local buckets are independent
//!   limiters, so A(T) ≤ A_store(T) + Σ A_share(T), twice the algorithm's bound.
//! - Buckets, if the store is unreachable for all nodes at once and usage is settled when it
//!   recovers: A(T) ≤ B + kS + rT. Let u be the level of a bucket charged with everything that was
//!   admitted, and U the level of the store's bucket. While the store answers, u − U does not grow.
//!   During an outage of length t the shares admit a ≤ S + rt, so u grows by at most S. Settlement
//!   then raises U to at least max(0, U − rt) + a − rt, because no node's unsettled usage drains
//!   faster than its share. So u − U has grown by at most min(U, rt) and does not exceed u. After k
//!   outages u − U ≤ kS and u ≤ B + kS, hence the bound.
//! - A single node: A(T) ≤ B + rT, for any number of outages and however they end. Its local bucket
//!   is charged with everything that is admitted and decides while usage is unsettled, and
//!   settlement raises the store to its level.

mod common;

use common::{clock, facts, poll_ready};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::AnsweredBy;
use tidegate_core::time::{Clock, ManualClock, Micros};
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, fleet};
use tidegate_testkit::property::check_property;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

/// The window of all rules here.
const WINDOW_US: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum OutageStep {
    /// A request to a node.
    Decide { node: usize, cost: u32 },
    /// A request to a node for which the store's response is lost.
    DecideAnswerLost { node: usize, cost: u32 },
    /// Time passes.
    Wait(u64),
    /// The store becomes unreachable for all nodes, or reachable again.
    ToggleAll,
    /// The store becomes unreachable for one node, or reachable again.
    ToggleNode(usize),
    /// A node settles its usage.
    Settle(usize),
    /// A node settles its usage, and the store's response is lost.
    SettleAnswerLost(usize),
    /// A node's breaker is closing: it lets every n-th call through.
    BreakerClosing(usize, u32),
}

/// Time and cost of each admitted request.
type AdmissionLog = Vec<(u64, u64)>;

struct OutageFleet {
    nodes: Vec<TestNode>,
    clock: ManualClock,
    unreachable: Vec<bool>,
    closing: bool,
    outages: u64,
    admitted: AdmissionLog,
}

impl OutageFleet {
    fn new(limit: &str, nodes: u32) -> Self {
        let clock = clock();
        let source = format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_fail: local }}]");
        let nodes = fleet(&source, nodes, &clock);
        let unreachable = vec![false; nodes.len()];
        Self { nodes, clock, unreachable, closing: false, outages: 0, admitted: Vec::new() }
    }

    fn apply_step(&mut self, step: &OutageStep) -> Result<(), TestCaseError> {
        match *step {
            OutageStep::Decide { node, cost } => {
                let node = node % self.nodes.len();
                self.decide(node, cost, self.unreachable[node])?;
            }
            OutageStep::DecideAnswerLost { node, cost } => {
                let node = node % self.nodes.len();
                self.nodes[node].store.set_fault(StoreFault::AnswerLost);
                self.decide(node, cost, true)?;
                self.set_unreachable(node, self.unreachable[node]);
            }
            OutageStep::Wait(span) => self.clock.advance(Micros::new(span)),
            OutageStep::ToggleAll => {
                let unreachable = !self.unreachable[0];
                self.outages += u64::from(unreachable);
                (0..self.nodes.len()).for_each(|node| self.set_unreachable(node, unreachable));
                if !unreachable {
                    (0..self.nodes.len()).for_each(|node| self.settle(node));
                }
            }
            OutageStep::ToggleNode(node) => {
                let node = node % self.nodes.len();
                self.set_unreachable(node, !self.unreachable[node]);
            }
            OutageStep::Settle(node) => self.settle(node % self.nodes.len()),
            OutageStep::SettleAnswerLost(node) => {
                let node = node % self.nodes.len();
                self.nodes[node].store.set_fault(StoreFault::AnswerLost);
                self.settle(node);
                self.set_unreachable(node, self.unreachable[node]);
            }
            OutageStep::BreakerClosing(node, one_of) => {
                let node = node % self.nodes.len();
                (self.unreachable[node], self.closing) = (false, true);
                self.nodes[node].store.set_fault(StoreFault::BreakerClosing(one_of));
            }
        }
        Ok(())
    }

    fn decide(&mut self, node: usize, cost: u32, unreachable: bool) -> Result<(), TestCaseError> {
        let limiter = &self.nodes[node].limiter;
        let is_settled = self.nodes.len() > 1 || !limiter.has_unsettled();
        let decision = poll_ready(limiter.decide(&facts(IP), cost));
        if unreachable {
            prop_assert_eq!(decision.answered_by(), AnsweredBy::Fallback);
        } else if is_settled && !self.closing {
            prop_assert_eq!(decision.answered_by(), AnsweredBy::Store);
        }
        if decision.is_allowed() {
            self.admitted.push((self.clock.now().as_micros(), cost.into()));
        }
        Ok(())
    }

    fn set_unreachable(&mut self, node: usize, unreachable: bool) {
        (self.unreachable[node], self.closing) = (unreachable, false);
        self.nodes[node].store.set_fault(if unreachable {
            StoreFault::Unreachable
        } else {
            StoreFault::None
        });
    }

    fn settle(&self, node: usize) {
        poll_ready(self.nodes[node].limiter.settle());
    }

    /// Checks every interval that begins and ends with an admission.
    fn check_bound(&self, bound: impl Fn(u64) -> Option<u64>) -> Result<(), TestCaseError> {
        for (i, (from, _)) in self.admitted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &self.admitted[i..] {
                sum += cost;
                if let Some(bound) = bound(to - from) {
                    prop_assert!(
                        sum <= bound,
                        "{sum} > {bound} in {} µs: {:?}",
                        to - from,
                        self.admitted
                    );
                }
            }
        }
        Ok(())
    }
}

fn decide_step() -> impl Strategy<Value = OutageStep> {
    (0..4_usize, 1..4_u32).prop_map(|(node, cost)| OutageStep::Decide { node, cost })
}

fn wait_step() -> impl Strategy<Value = OutageStep> {
    prop_oneof![0..WINDOW_US / 4, 0..WINDOW_US * 3].prop_map(OutageStep::Wait)
}

/// Outages that hit all nodes at once and are settled when they end.
fn clean_outages() -> impl Strategy<Value = Vec<OutageStep>> {
    vec(
        prop_oneof![12 => decide_step(), 3 => wait_step(), 1 => Just(OutageStep::ToggleAll)],
        1..120,
    )
}

/// All kinds of failures.
fn arbitrary_failures() -> impl Strategy<Value = Vec<OutageStep>> {
    let step = prop_oneof![
        12 => decide_step(),
        3 => wait_step(),
        1 => Just(OutageStep::ToggleAll),
        1 => (0..4_usize).prop_map(OutageStep::ToggleNode),
        1 => (0..4_usize).prop_map(OutageStep::Settle),
        1 => (0..4_usize).prop_map(OutageStep::SettleAnswerLost),
        1 => (0..4_usize, 1..4_u32).prop_map(|(node, cost)| OutageStep::DecideAnswerLost { node, cost }),
    ];
    vec(step, 1..120)
}

/// Outages that end with a closing breaker and are settled at some later time.
fn breaker_closing_outages() -> impl Strategy<Value = Vec<OutageStep>> {
    let step = prop_oneof![
        12 => decide_step(),
        3 => wait_step(),
        1 => Just(OutageStep::ToggleNode(0)),
        1 => (2..5_u32).prop_map(|one_of| OutageStep::BreakerClosing(0, one_of)),
        2 => Just(OutageStep::Settle(0)),
        1 => Just(OutageStep::SettleAnswerLost(0)),
        1 => (1..4_u32).prop_map(|cost| OutageStep::DecideAnswerLost { node: 0, cost }),
    ];
    vec(step, 1..120)
}

fn cases() -> u32 {
    tidegate_testkit::property::cases() / 10
}

/// The sum of the shares of all nodes.
fn sum_of_shares(limit: u64, nodes: u32) -> u64 {
    let nodes = u64::from(nodes);
    (limit / nodes).max(1) * nodes
}

#[test]
fn bucket_fleet_admits_shares_once_per_outage() {
    let fleets = (1..5_u32, 1..30_u64, 1..30_u64, prop::bool::ANY, clean_outages());
    check_property("outages-buckets", cases(), &fleets, |(nodes, rate, burst, leaky, steps)| {
        // If shares were rounded up, the sum of their rates would exceed the rate.
        let (rate, burst) = (rate.max(nodes.into()), burst.max(nodes.into()));
        let algorithm = if leaky { "leaky_bucket" } else { "token_bucket" };
        let mut fleet =
            OutageFleet::new(&format!("{rate}/s burst {burst} using {algorithm}"), nodes);
        for step in &steps {
            fleet.apply_step(step)?;
        }
        let extra = if nodes == 1 { 0 } else { fleet.outages * sum_of_shares(burst, nodes) };
        fleet.check_bound(|span| Some(burst + extra + rate * span / WINDOW_US))
    });
}

/// Holds whenever usage is settled, and whichever calls a closing breaker lets through.
#[test]
fn single_node_never_exceeds_limit_over_outages() {
    let nodes = (1..30_u64, 1..30_u64, prop::bool::ANY, breaker_closing_outages());
    check_property("outages-alone", cases(), &nodes, |(rate, burst, leaky, steps)| {
        let algorithm = if leaky { "leaky_bucket" } else { "token_bucket" };
        let mut fleet = OutageFleet::new(&format!("{rate}/s burst {burst} using {algorithm}"), 1);
        for step in &steps {
            fleet.apply_step(step)?;
        }
        fleet.check_bound(|span| Some(burst + rate * span / WINDOW_US))
    });
}

#[test]
fn arbitrary_failures_admit_at_most_twice_bound() {
    let fleets = (1..5_u32, 1..30_u64, 0..5_usize, arbitrary_failures());
    check_property("outages-twice", cases(), &fleets, |(nodes, limit, algorithm, steps)| {
        let limit = limit.max(nodes.into());
        let name = [
            "token_bucket",
            "leaky_bucket",
            "fixed_window",
            "sliding_window_log",
            "sliding_window_counter",
        ][algorithm];
        let mut fleet = OutageFleet::new(&format!("{limit}/s using {name}"), nodes);
        for step in &steps {
            fleet.apply_step(step)?;
        }
        let both = limit + sum_of_shares(limit, nodes);
        fleet.check_bound(|span| match name {
            "fixed_window" => (span <= WINDOW_US).then_some(2 * both),
            "sliding_window_log" => (span < WINDOW_US).then_some(both),
            "sliding_window_counter" => {
                (span <= WINDOW_US).then_some(both * (WINDOW_US + span) / WINDOW_US)
            }
            _ => Some(both + both * span / WINDOW_US),
        })
    });
}
