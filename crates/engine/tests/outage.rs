//! Fleets under random outages: what is admitted over any interval stays within its bound.
//!
//! `S` is the sum of the shares, which is at most the limit `B` (unless there are more nodes than
//! requests), and `k` the number of outages.
//!
//! - Whatever fails, is lost or is settled late: the store and each local bucket are limiters of
//!   their own, so A(T) ≤ A_store(T) + Σ A_share(T), twice the algorithm's own bound.
//! - Buckets, the store gone for all nodes at once and what is owed settled when it is back:
//!   A(T) ≤ B + kS + rT. Let u be the level of a bucket that all that was admitted is charged to, U
//!   the store's. While the store answers, u − U does not grow. During an outage of length t the
//!   shares admit a ≤ S + rt, so u grows by no more than S. Its end brings U to at least
//!   max(0, U − rt) + a − rt, because no node's debt drains faster than its share: u − U has grown
//!   by no more than min(U, rt), and has not passed u. So after k outages u − U ≤ kS and
//!   u ≤ B + kS, hence the bound.
//! - One node alone: A(T) ≤ B + rT, however many outages and however they end: its local bucket is
//!   charged all that is admitted, it decides for as long as something is owed, and a settled store
//!   is brought to its level.

mod common;

use common::flaky::{Fault, Node, fleet};
use common::{clock, facts, ready};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::AnsweredBy;
use tidegate_core::time::{Clock, ManualClock, Micros};
use tidegate_testkit::property::holds;

const IP: &[(&str, &str)] = &[("ip", "203.0.113.7")];

/// The window of all rules here.
const WINDOW_US: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// A request to a node.
    Ask { node: usize, cost: u32 },
    /// A request to a node, to which the store's answer is lost.
    AskMute { node: usize, cost: u32 },
    /// Time passes.
    Wait(u64),
    /// The store goes for all nodes, or comes back.
    Turn,
    /// The store goes for one node, or comes back.
    TurnOne(usize),
    /// A node writes back what it owes.
    Settle(usize),
    /// A node writes back what it owes, and the answer is lost.
    SettleMute(usize),
    /// A node's breaker closes: it lets one call of this number through.
    Closing(usize, u32),
}

/// What is admitted, and when.
type Admitted = Vec<(u64, u64)>;

struct Fleet {
    nodes: Vec<Node>,
    clock: ManualClock,
    gone: Vec<bool>,
    closing: bool,
    outages: u64,
    admitted: Admitted,
}

impl Fleet {
    fn new(limit: &str, nodes: u32) -> Self {
        let clock = clock();
        let source = format!("rules: [{{ id: r, key_by: ip, limit: {limit}, on_fail: local }}]");
        let nodes = fleet(&source, nodes, &clock);
        let gone = vec![false; nodes.len()];
        Self { nodes, clock, gone, closing: false, outages: 0, admitted: Vec::new() }
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Ask { node, cost } => {
                let node = node % self.nodes.len();
                self.ask(node, cost, self.gone[node])?;
            }
            Step::AskMute { node, cost } => {
                let node = node % self.nodes.len();
                self.nodes[node].store.fault(Fault::Mute);
                self.ask(node, cost, true)?;
                self.turn(node, self.gone[node]);
            }
            Step::Wait(span) => self.clock.advance(Micros::new(span)),
            Step::Turn => {
                let gone = !self.gone[0];
                self.outages += u64::from(gone);
                (0..self.nodes.len()).for_each(|node| self.turn(node, gone));
                if !gone {
                    (0..self.nodes.len()).for_each(|node| self.settle(node));
                }
            }
            Step::TurnOne(node) => {
                let node = node % self.nodes.len();
                self.turn(node, !self.gone[node]);
            }
            Step::Settle(node) => self.settle(node % self.nodes.len()),
            Step::SettleMute(node) => {
                let node = node % self.nodes.len();
                self.nodes[node].store.fault(Fault::Mute);
                self.settle(node);
                self.turn(node, self.gone[node]);
            }
            Step::Closing(node, one_of) => {
                let node = node % self.nodes.len();
                (self.gone[node], self.closing) = (false, true);
                self.nodes[node].store.fault(Fault::Closing(one_of));
            }
        }
        Ok(())
    }

    fn ask(&mut self, node: usize, cost: u32, gone: bool) -> Result<(), TestCaseError> {
        let limiter = &self.nodes[node].limiter;
        let is_settled = self.nodes.len() > 1 || !limiter.owes();
        let decision = ready(limiter.decide(&facts(IP), cost));
        if gone {
            prop_assert_eq!(decision.answered_by(), AnsweredBy::Fallback);
        } else if is_settled && !self.closing {
            prop_assert_eq!(decision.answered_by(), AnsweredBy::Store);
        }
        if decision.is_allowed() {
            self.admitted.push((self.clock.now().as_micros(), cost.into()));
        }
        Ok(())
    }

    fn turn(&mut self, node: usize, gone: bool) {
        (self.gone[node], self.closing) = (gone, false);
        self.nodes[node].store.fault(if gone { Fault::Gone } else { Fault::None });
    }

    fn settle(&self, node: usize) {
        ready(self.nodes[node].limiter.settle());
    }

    /// Checks every interval that begins and ends with an admission.
    fn within(&self, most: impl Fn(u64) -> Option<u64>) -> Result<(), TestCaseError> {
        for (i, (from, _)) in self.admitted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &self.admitted[i..] {
                sum += cost;
                if let Some(most) = most(to - from) {
                    prop_assert!(
                        sum <= most,
                        "{sum} > {most} in {} µs: {:?}",
                        to - from,
                        self.admitted
                    );
                }
            }
        }
        Ok(())
    }
}

fn ask() -> impl Strategy<Value = Step> {
    (0..4_usize, 1..4_u32).prop_map(|(node, cost)| Step::Ask { node, cost })
}

fn wait() -> impl Strategy<Value = Step> {
    prop_oneof![0..WINDOW_US / 4, 0..WINDOW_US * 3].prop_map(Step::Wait)
}

/// Outages that are the same for all, and settled when they end.
fn clean() -> impl Strategy<Value = Vec<Step>> {
    vec(prop_oneof![12 => ask(), 3 => wait(), 1 => Just(Step::Turn)], 1..120)
}

/// Everything that can go wrong.
fn wild() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => ask(),
        3 => wait(),
        1 => Just(Step::Turn),
        1 => (0..4_usize).prop_map(Step::TurnOne),
        1 => (0..4_usize).prop_map(Step::Settle),
        1 => (0..4_usize).prop_map(Step::SettleMute),
        1 => (0..4_usize, 1..4_u32).prop_map(|(node, cost)| Step::AskMute { node, cost }),
    ];
    vec(step, 1..120)
}

/// Outages that end with a breaker that closes, and are settled sooner or later.
fn closing() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => ask(),
        3 => wait(),
        1 => Just(Step::TurnOne(0)),
        1 => (2..5_u32).prop_map(|one_of| Step::Closing(0, one_of)),
        2 => Just(Step::Settle(0)),
        1 => Just(Step::SettleMute(0)),
        1 => (1..4_u32).prop_map(|cost| Step::AskMute { node: 0, cost }),
    ];
    vec(step, 1..120)
}

fn cases() -> u32 {
    tidegate_testkit::property::cases() / 10
}

/// The shares of all nodes together.
fn shared(limit: u64, nodes: u32) -> u64 {
    let nodes = u64::from(nodes);
    (limit / nodes).max(1) * nodes
}

#[test]
fn a_fleet_on_buckets_admits_one_sum_of_shares_more_for_each_outage() {
    let fleets = (1..5_u32, 1..30_u64, 1..30_u64, prop::bool::ANY, clean());
    holds("outages-buckets", cases(), &fleets, |(nodes, rate, burst, leaky, steps)| {
        // Shares that are rounded up would make the sum of the rates more than the rate.
        let (rate, burst) = (rate.max(nodes.into()), burst.max(nodes.into()));
        let algorithm = if leaky { "leaky_bucket" } else { "token_bucket" };
        let mut fleet = Fleet::new(&format!("{rate}/s burst {burst} using {algorithm}"), nodes);
        for step in &steps {
            fleet.take(step)?;
        }
        let extra = if nodes == 1 { 0 } else { fleet.outages * shared(burst, nodes) };
        fleet.within(|span| Some(burst + extra + rate * span / WINDOW_US))
    });
}

/// Whenever it is settled, and whatever the breaker lets through meanwhile.
#[test]
fn a_node_alone_admits_no_more_than_the_limit_however_its_outages_end() {
    let nodes = (1..30_u64, 1..30_u64, prop::bool::ANY, closing());
    holds("outages-alone", cases(), &nodes, |(rate, burst, leaky, steps)| {
        let algorithm = if leaky { "leaky_bucket" } else { "token_bucket" };
        let mut fleet = Fleet::new(&format!("{rate}/s burst {burst} using {algorithm}"), 1);
        for step in &steps {
            fleet.take(step)?;
        }
        fleet.within(|span| Some(burst + rate * span / WINDOW_US))
    });
}

#[test]
fn whatever_fails_no_more_than_twice_the_bound_is_admitted() {
    let fleets = (1..5_u32, 1..30_u64, 0..5_usize, wild());
    holds("outages-twice", cases(), &fleets, |(nodes, limit, algorithm, steps)| {
        let limit = limit.max(nodes.into());
        let name = [
            "token_bucket",
            "leaky_bucket",
            "fixed_window",
            "sliding_window_log",
            "sliding_window_counter",
        ][algorithm];
        let mut fleet = Fleet::new(&format!("{limit}/s using {name}"), nodes);
        for step in &steps {
            fleet.take(step)?;
        }
        let both = limit + shared(limit, nodes);
        fleet.within(|span| match name {
            "fixed_window" => (span <= WINDOW_US).then_some(2 * both),
            "sliding_window_log" => (span < WINDOW_US).then_some(both),
            "sliding_window_counter" => {
                (span <= WINDOW_US).then_some(both * (WINDOW_US + span) / WINDOW_US)
            }
            _ => Some(both + both * span / WINDOW_US),
        })
    });
}
