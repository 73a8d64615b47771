//! How much of a limit is used while the demand moves from region to region.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::line_chart::{ChartLine, LineChart};
use super::nodes::{LinkedStores, RegionNodes};
use super::{REGIONS, RegionMode, SHARES};
use crate::demand::{TICK, offer_evenly};
use crate::fleet::node::NodeLimiter;
use crate::fleet::verdict;
use crate::report::MarkdownTable;

/// The limit of all regions together, per second.
const LIMIT: &str = "1000/s burst 2000";
const RATE: u64 = 1_000;
const BURST: u64 = 2_000;

/// Demand relative to the limit.
const DEMAND: f64 = 1.5;

/// Nodes of each region.
const NODES: u32 = 2;

/// Where the demand is, one phase after the other.
const PHASES: [usize; 4] = [0, 1, 2, 0];
const PHASE: Duration = Duration::from_secs(6);

/// The others first refill to what they keep, half of their burst, which takes a second.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Resolution of the measurement.
const BIN: Duration = Duration::from_millis(250);

/// The goal for the use of the limit once it has settled.
const LEAST: f64 = 0.95;

const MODES: [RegionMode; 2] = [RegionMode::FixedShares, RegionMode::Borrowing];

/// What one mode admitted.
#[derive(Debug)]
pub struct UsageRun {
    mode: RegionMode,
    /// Requests in each bin.
    admitted: Vec<u64>,
    /// Calls to other regions per second and node.
    calls: f64,
}

/// Runs both modes at the same time; they need little of the machine.
///
/// # Panics
/// When a store does not answer.
#[must_use]
pub fn run(runtime: &Runtime, stores: &LinkedStores) -> Vec<UsageRun> {
    let start_nodes = |mode: RegionMode| {
        let rules = mode.rules(LIMIT, "");
        RegionNodes::start(runtime, stores, "moving", mode, &rules, [NODES; 3])
    };
    let fleets = MODES.map(start_nodes);
    let length = PHASE * u32::try_from(PHASES.len()).expect("few phases");
    let bins = length.as_millis() / BIN.as_millis();
    let admitted = MODES.map(|_| (0..bins).map(|_| AtomicU64::new(0)).collect::<Arc<[_]>>());
    let (before, start) = (fleets.each_ref().map(RegionNodes::exchange_totals), Instant::now());
    let mut demand = JoinSet::new();
    for (fleet, admitted) in fleets.iter().zip(&admitted) {
        for region in 0..REGIONS.len() {
            for limiter in fleet.limiters(region) {
                let (limiter, admitted) = (Arc::clone(limiter), Arc::clone(admitted));
                let offer = offer(limiter, region, start + TICK, length, admitted);
                demand.spawn_on(offer, runtime.handle());
            }
        }
    }
    runtime.block_on(demand.join_all());
    let nodes = f64::from(NODES) * REGIONS.len() as f64;
    let result = |index: usize| {
        let calls = (fleets[index].exchange_totals() - before[index]).calls;
        UsageRun {
            mode: MODES[index],
            admitted: admitted[index].iter().map(|bin| bin.load(Ordering::Relaxed)).collect(),
            calls: calls as f64 / nodes / length.as_secs_f64(),
        }
    };
    (0..MODES.len()).map(result).collect()
}

/// One node's part of the demand.
async fn offer(
    limiter: Arc<NodeLimiter>,
    region: usize,
    start: Instant,
    length: Duration,
    admitted: Arc<[AtomicU64]>,
) {
    let rate = |elapsed: Duration| {
        let is_here = PHASES[index_of(elapsed, PHASE) % PHASES.len()] == region;
        if is_here { RATE as f64 * DEMAND / f64::from(NODES) } else { 0.0 }
    };
    let call = |elapsed: Duration| {
        let (limiter, admitted) = (Arc::clone(&limiter), Arc::clone(&admitted));
        async move {
            let facts: Facts<'_> = [("api_key", "one")].into_iter().collect();
            let decision = limiter.decide(&facts, 1).await;
            assert!(decision.answered_by() != AnsweredBy::Fallback);
            let is_allowed = u64::from(decision.is_allowed());
            admitted[index_of(elapsed, BIN)].fetch_add(is_allowed, Ordering::Relaxed);
        }
    };
    offer_evenly(start, length, rate, call).await;
}

/// Which of consecutive spans of this length it is.
fn index_of(elapsed: Duration, span: Duration) -> usize {
    usize::try_from(elapsed.as_millis() / span.as_millis()).expect("a short benchmark")
}

impl UsageRun {
    /// What was admitted between two times after the beginning of a phase, relative to the limit.
    fn used(&self, phase: usize, from: Duration, to: Duration) -> f64 {
        let first = phase * index_of(PHASE, BIN);
        let bins = first + index_of(from, BIN)..first + index_of(to, BIN);
        let admitted: u64 = self.admitted[bins].iter().sum();
        admitted as f64 / (RATE as f64 * (to - from).as_secs_f64())
    }
}

/// The results.
#[must_use]
pub fn results_table(runs: &[UsageRun]) -> MarkdownTable {
    let mut table = MarkdownTable::new(&[
        "demand in",
        "share",
        "rule",
        "limit used, first second",
        "second to third second",
        "after that",
        "calls to other regions/s per node, all phases",
    ]);
    let seconds = Duration::from_secs;
    for (phase, region) in PHASES.iter().enumerate() {
        for run in runs {
            let used = |from, to| format!("{:.1} %", 100.0 * run.used(phase, from, to));
            table.push_row(&[
                format!("{}. {}", phase + 1, REGIONS[*region]),
                format!("{} %", SHARES[*region]),
                run.mode.name().to_owned(),
                used(Duration::ZERO, seconds(1)),
                used(seconds(1), SETTLED_AFTER),
                used(SETTLED_AFTER, PHASE),
                format!("{:.1}", run.calls),
            ]);
        }
    }
    table
}

/// Adds a row for each goal.
pub fn push_goals(runs: &[UsageRun], table: &mut MarkdownTable) {
    for run in runs.iter().filter(|run| run.mode == RegionMode::Borrowing) {
        let phases = 0..PHASES.len();
        let least = phases.map(|phase| run.used(phase, SETTLED_AFTER, PHASE)).fold(1.0, f64::min);
        table.push_row(&[
            "from 3 s after each move, ≥ 95 % of the limit used in the region of the demand"
                .to_owned(),
            format!("{} ({:.1} %)", verdict(least >= LEAST), 100.0 * least),
        ]);
        let admitted: u64 = run.admitted.iter().sum();
        let bound = BURST + RATE * PHASE.as_secs() * PHASES.len() as u64;
        table.push_row(&[
            "all regions together admit at most the burst and what refilled".to_owned(),
            format!("{} ({admitted} of {bound})", verdict(admitted <= bound)),
        ]);
    }
}

/// The use of the limit over time.
#[must_use]
pub fn chart(runs: &[UsageRun]) -> LineChart {
    let colours = ["#d29922", "#2f81f7"];
    let line = |(run, colour): (&UsageRun, &'static str)| {
        let limit = RATE as f64 * BIN.as_secs_f64();
        let middle = |bin: usize| (bin as f64 + 0.5) * BIN.as_secs_f64();
        let bins = run.admitted.iter().enumerate();
        let points = bins.map(|(bin, count)| (middle(bin), 100.0 * *count as f64 / limit));
        ChartLine { name: run.mode.name(), colour, points: points.collect() }
    };
    let mark = |(phase, region): (usize, &usize)| {
        let label = format!("demand in {}", REGIONS[*region]);
        (phase as f64 * PHASE.as_secs_f64(), label)
    };
    LineChart {
        title: "use of a limit while the demand moves, in % of its rate".to_owned(),
        x_label: "seconds".to_owned(),
        x_max: PHASE.as_secs_f64() * PHASES.len() as f64,
        x_step: 2.0,
        y_max: 160.0,
        y_step: 20.0,
        lines: runs.iter().zip(colours).map(line).collect(),
        marks: PHASES.iter().enumerate().map(mark).collect(),
    }
}
