//! What eight nodes use of a limit when one of them has most of the demand, and another one every
//! second.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::node::{FleetNode, NodeLimiter, start_nodes};
use super::{FleetMode, verdict};
use crate::demand::{TICK, offer_evenly};
use crate::report::MarkdownTable;

const NODES: u32 = 8;

/// The node in demand gets this many times the requests of each other node.
const SKEW: f64 = 8.0;

/// Requests per second of the limit; its burst is twice that.
const LIMIT: f64 = 1_000.0;

/// Demand above the limit first uses up the burst, at three times the limit.
const WARM_UP: Duration = Duration::from_secs(3);
const WARM_UP_FACTOR: f64 = 3.0;

/// Every node is in demand twice.
const TURN: Duration = Duration::from_secs(16);

const MODES: [FleetMode; 3] = [FleetMode::EXACT, FleetMode::LEASED, FleetMode::ASYNC];

/// Demand relative to the limit, and the goal of leased mode: at most this many refusals, or at
/// least this share of the limit used.
const LOADS: [(f64, SkewGoal); 3] = [
    (0.9, SkewGoal::NoRefusal),
    (1.2, SkewGoal::Used { at_least: 0.95 }),
    (2.0, SkewGoal::Used { at_least: 0.98 }),
];

#[derive(Clone, Copy, Debug)]
enum SkewGoal {
    NoRefusal,
    Used { at_least: f64 },
}

/// Result of one mode under one load.
#[derive(Clone, Copy, Debug)]
pub struct SkewedRun {
    factor: f64,
    mode: FleetMode,
    offered: u64,
    refused: u64,
    /// Admitted requests, relative to what refilled.
    used: f64,
    /// Requests to the store per second and node.
    store_requests: f64,
}

/// The fleet of one mode under one load.
struct SkewedFleet {
    factor: f64,
    mode: FleetMode,
    nodes: Vec<FleetNode>,
    counts: Arc<Counts>,
}

/// Requests since the warm-up.
#[derive(Debug, Default)]
struct Counts {
    offered: AtomicU64,
    refused: AtomicU64,
}

/// Runs all modes under all loads at the same time; together they need little of the machine.
///
/// # Panics
/// When the store does not answer.
#[must_use]
pub fn run(runtime: &Runtime, server: &RedisServer) -> Vec<SkewedRun> {
    let runs = LOADS.into_iter().flat_map(|(factor, _)| MODES.map(|mode| (factor, mode)));
    let fleets: Vec<_> = runs
        .map(|(factor, mode)| {
            let rules =
                format!("rules: [{{ id: skewed, limit: 1000/s burst 2000, {} }}]", mode.setting);
            let name = format!("skewed-{factor}-{}", mode.name);
            let nodes = start_nodes(runtime, server, &name, NODES, &rules);
            SkewedFleet { factor, mode, nodes, counts: Arc::default() }
        })
        .collect();
    let start = Instant::now() + TICK;
    let mut demand = JoinSet::new();
    for fleet in &fleets {
        for (index, node) in fleet.nodes.iter().enumerate() {
            let (limiter, counts) = (Arc::clone(&node.limiter), Arc::clone(&fleet.counts));
            demand.spawn_on(offer(limiter, index, fleet.factor, start, counts), runtime.handle());
        }
    }
    std::thread::sleep(WARM_UP);
    let requests =
        |fleet: &SkewedFleet| -> u64 { fleet.nodes.iter().map(FleetNode::store_requests).sum() };
    let before: Vec<u64> = fleets.iter().map(requests).collect();
    runtime.block_on(demand.join_all());
    let seconds = TURN.as_secs_f64();
    let results = fleets.iter().zip(before).map(|(fleet, before)| {
        let offered = fleet.counts.offered.load(Ordering::Relaxed);
        let refused = fleet.counts.refused.load(Ordering::Relaxed);
        let sent = requests(fleet) - before;
        SkewedRun {
            factor: fleet.factor,
            mode: fleet.mode,
            offered,
            refused,
            used: (offered - refused) as f64 / (LIMIT * seconds),
            store_requests: sent as f64 / seconds / f64::from(NODES),
        }
    });
    results.collect()
}

/// Sends one node's share of the demand until the end.
async fn offer(
    limiter: Arc<NodeLimiter>,
    index: usize,
    factor: f64,
    start: Instant,
    counts: Arc<Counts>,
) {
    let rate = |elapsed: Duration| {
        let factor = if elapsed >= WARM_UP || factor < 1.0 { factor } else { WARM_UP_FACTOR };
        let in_demand = elapsed.as_secs() % u64::from(NODES) == index as u64;
        let share = if in_demand { SKEW } else { 1.0 } / (SKEW + f64::from(NODES - 1));
        LIMIT * factor * share
    };
    let call = |elapsed: Duration| {
        let counts = (elapsed >= WARM_UP).then(|| Arc::clone(&counts));
        decide(Arc::clone(&limiter), counts)
    };
    offer_evenly(start, WARM_UP + TURN, rate, call).await;
}

async fn decide(limiter: Arc<NodeLimiter>, counts: Option<Arc<Counts>>) {
    let decision = limiter.decide(&Facts::new(), 1).await;
    assert!(
        decision.answered_by() != AnsweredBy::Fallback,
        "the store did not answer: {:?}",
        limiter.store().stats()
    );
    if let Some(counts) = counts {
        counts.offered.fetch_add(1, Ordering::Relaxed);
        counts.refused.fetch_add(u64::from(!decision.is_allowed()), Ordering::Relaxed);
    }
}

/// The results.
#[must_use]
pub fn results_table(runs: &[SkewedRun]) -> MarkdownTable {
    let mut table = MarkdownTable::new(&[
        "demand / limit",
        "mode",
        "requests",
        "refused",
        "limit used",
        "store requests/s per node",
    ]);
    for run in runs {
        table.push_row(&[
            run.factor.to_string(),
            run.mode.name.to_owned(),
            run.offered.to_string(),
            run.refused.to_string(),
            format!("{:.1} %", 100.0 * run.used),
            format!("{:.1}", run.store_requests),
        ]);
    }
    table
}

/// Adds a row for each goal.
///
/// # Panics
/// When leased mode was not run.
pub fn push_goals(runs: &[SkewedRun], table: &mut MarkdownTable) {
    for (factor, goal) in LOADS {
        let mut leased = runs.iter().filter(|run| run.mode == FleetMode::LEASED);
        let run = leased.find(|run| run.factor == factor).expect("leased mode was run");
        let (text, met) = match goal {
            SkewGoal::NoRefusal => (
                "no refusal".to_owned(),
                format!("{} ({})", verdict(run.refused == 0), run.refused),
            ),
            SkewGoal::Used { at_least } => (
                format!("≥ {:.0} % used", 100.0 * at_least),
                format!("{} ({:.1} %)", verdict(run.used >= at_least), 100.0 * run.used),
            ),
        };
        table.push_row(&[format!("8 skewed nodes at {factor} × the limit: {text}"), met]);
    }
}
