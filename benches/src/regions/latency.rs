//! How long decisions take in a region with fixed shares and with borrowing, beside a single
//! region, at a steady rate.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::RegionMode;
use super::nodes::{LinkedStores, ONE_WAY, RegionNodes};
use crate::demand::{TICK, offer_evenly};
use crate::fleet::node::NodeLimiter;
use crate::fleet::verdict;
use crate::load::key;
use crate::paced::percentile;
use crate::report::{MarkdownTable, median};

/// The limit of each key, and of all keys together, per second.
const LIMIT: &str = "2000/s burst 2000";
const KEYS: usize = 10;
const RATE: f64 = 20_000.0;

/// Nodes in the region of the demand.
const NODES: u32 = 2;

/// Time in which the demand uses up what was saved, and then counts.
const WARM_UP: Duration = Duration::from_millis(700);
const TURN: Duration = Duration::from_millis(900);

/// The goal for the p99 relative to a single region.
const MOST: f64 = 1.1;

/// Demand in one region, relative to the limit of all regions together.
#[derive(Clone, Copy, Debug)]
struct PacedLoad {
    warm_up: f64,
    factor: f64,
    meaning: &'static str,
}

const LOADS: [PacedLoad; 3] = [
    PacedLoad { warm_up: 0.4, factor: 0.4, meaning: "below the share" },
    PacedLoad { warm_up: 1.5, factor: 0.9, meaning: "above the share, below the limit" },
    PacedLoad { warm_up: 3.0, factor: 1.5, meaning: "above the limit" },
];

/// One decision.
#[derive(Clone, Copy, Debug)]
struct TimedDecision {
    took: Duration,
    answered_by: AnsweredBy,
    is_allowed: bool,
}

/// Result of one turn. Times in microseconds, others relative to all decisions.
#[derive(Clone, Copy, Debug)]
struct PacedTurn {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    refused: f64,
    borrowed: f64,
    /// Those that waited for the store of the same region.
    own_store: f64,
}

struct PacedContender {
    mode: RegionMode,
    nodes: RegionNodes,
    /// For each load.
    turns: [Vec<PacedTurn>; LOADS.len()],
}

/// One contender for each mode.
pub struct LatencyBench<'a> {
    runtime: &'a Runtime,
    contenders: Vec<PacedContender>,
}

impl<'a> LatencyBench<'a> {
    /// Starts the nodes.
    #[must_use]
    pub fn start(runtime: &'a Runtime, stores: &LinkedStores) -> Self {
        let contender = |mode: RegionMode| {
            let lenders = u32::from(mode == RegionMode::Borrowing);
            let counts = [NODES, lenders, lenders];
            let rules = mode.rules(LIMIT, "");
            let nodes = RegionNodes::start(runtime, stores, "latency", mode, &rules, counts);
            PacedContender { mode, nodes, turns: Default::default() }
        };
        Self { runtime, contenders: Vec::from(RegionMode::ALL.map(contender)) }
    }

    /// Runs rounds in which every contender takes a turn under every load.
    pub fn run_rounds(&mut self, rounds: usize) {
        for round in 0..rounds {
            for (index, load) in LOADS.iter().enumerate() {
                for contender in &mut self.contenders {
                    let turn = contender.run_turn(self.runtime, *load, index);
                    eprintln!("round {round}: {load:?}, {:?}: {turn:.2?}", contender.mode);
                    contender.turns[index].push(turn);
                }
            }
        }
    }

    /// The results.
    #[must_use]
    pub fn table(&self) -> MarkdownTable {
        let mut table = MarkdownTable::new(&[
            "demand / limit",
            "rule",
            "refused",
            "borrowed",
            "own store",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "slowest, µs",
            "p99 / one region",
            "p99 / fixed shares",
        ]);
        for (index, load) in LOADS.iter().enumerate() {
            for contender in &self.contenders {
                let column = |field: fn(&PacedTurn) -> f64| {
                    median(&contender.turns[index].iter().map(field).collect::<Vec<_>>())
                };
                let percent = |part: f64| format!("{:.1} %", 100.0 * part);
                table.push_row(&[
                    format!("{}, {}", load.factor, load.meaning),
                    contender.mode.name().to_owned(),
                    percent(column(|turn| turn.refused)),
                    percent(column(|turn| turn.borrowed)),
                    percent(column(|turn| turn.own_store)),
                    format!("{:.1}", column(|turn| turn.p50)),
                    format!("{:.1}", column(|turn| turn.p99)),
                    format!("{:.0}", column(|turn| turn.p999)),
                    format!("{:.0}", contender.slowest(index)),
                    format!("{:.2}", self.p99_ratio(contender, RegionMode::OneRegion, index)),
                    format!("{:.2}", self.p99_ratio(contender, RegionMode::FixedShares, index)),
                ]);
            }
        }
        table
    }

    /// Adds a row for each goal.
    pub fn push_goals(&self, table: &mut MarkdownTable) {
        let borrowing = self.contenders.iter().filter(|it| it.mode == RegionMode::Borrowing);
        let round_trip = 2.0 * ONE_WAY.as_secs_f64() * 1e6;
        for contender in borrowing {
            for (index, PacedLoad { factor, .. }) in LOADS.iter().enumerate() {
                for other in [RegionMode::OneRegion, RegionMode::FixedShares] {
                    let (ratio, other) = (self.p99_ratio(contender, other, index), other.name());
                    table.push_row(&[
                        format!("{factor} × the limit: p99 with borrowing ≤ {MOST} × {other}"),
                        format!("{} ({ratio:.2})", verdict(ratio <= MOST)),
                    ]);
                }
            }
            let slowest =
                (0..LOADS.len()).map(|index| contender.slowest(index)).fold(0.0, f64::max);
            table.push_row(&[
                "no decision takes a round trip between regions (150 ms)".to_owned(),
                format!("{} ({:.1} ms)", verdict(slowest < round_trip), slowest / 1e3),
            ]);
        }
    }

    /// The median over rounds of the p99 relative to that of another mode in the same round.
    fn p99_ratio(&self, contender: &PacedContender, other: RegionMode, load: usize) -> f64 {
        let other = self.contenders.iter().filter(|it| it.mode == other);
        let other = other.flat_map(|contender| &contender.turns[load]);
        let pairs = contender.turns[load].iter().zip(other);
        median(&pairs.map(|(turn, other)| turn.p99 / other.p99).collect::<Vec<_>>())
    }
}

impl PacedContender {
    fn slowest(&self, load: usize) -> f64 {
        self.turns[load].iter().map(|turn| turn.max).fold(0.0, f64::max)
    }

    /// Each load has separate keys.
    fn run_turn(&self, runtime: &Runtime, load: PacedLoad, index: usize) -> PacedTurn {
        let keys: Arc<[String]> = (0..KEYS).map(|at| key(index * KEYS + at)).collect();
        let start = Instant::now() + TICK;
        let mut demand = JoinSet::new();
        for limiter in self.nodes.limiters(0) {
            let offer = offer(Arc::clone(limiter), Arc::clone(&keys), load, start);
            demand.spawn_on(offer, runtime.handle());
        }
        PacedTurn::of(&runtime.block_on(demand.join_all()).concat())
    }
}

/// One node's part of the demand. Returns the decisions after the warm-up.
async fn offer(
    limiter: Arc<NodeLimiter>,
    keys: Arc<[String]>,
    load: PacedLoad,
    start: Instant,
) -> Vec<TimedDecision> {
    let rate = |elapsed: Duration| {
        let factor = if elapsed < WARM_UP { load.warm_up } else { load.factor };
        RATE * factor / f64::from(NODES)
    };
    let mut at = 0;
    let call = |elapsed: Duration| {
        at = (at + 1) % KEYS;
        let decision = decide(Arc::clone(&limiter), Arc::clone(&keys), at);
        async move {
            let decision = decision.await;
            (elapsed >= WARM_UP).then_some(decision)
        }
    };
    let decisions = offer_evenly(start, WARM_UP + TURN, rate, call).await;
    decisions.into_iter().flatten().collect()
}

async fn decide(limiter: Arc<NodeLimiter>, keys: Arc<[String]>, at: usize) -> TimedDecision {
    let facts: Facts<'_> = [("api_key", keys[at].as_str())].into_iter().collect();
    let before = Instant::now();
    let decision = limiter.decide(&facts, 1).await;
    let took = before.elapsed();
    let answered_by = decision.answered_by();
    assert!(answered_by != AnsweredBy::Fallback, "{:?}", limiter.store().stats());
    TimedDecision { took, answered_by, is_allowed: decision.is_allowed() }
}

impl PacedTurn {
    fn of(decisions: &[TimedDecision]) -> Self {
        let mut times: Vec<f64> =
            decisions.iter().map(|decision| decision.took.as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        let part = |counts: fn(&TimedDecision) -> bool| {
            let count = decisions.iter().filter(|decision| counts(decision)).count();
            count as f64 / decisions.len() as f64
        };
        let [p50, p99, p999, max] = [500, 990, 999, 1_000].map(|at| percentile(&times, at));
        Self {
            p50,
            p99,
            p999,
            max,
            refused: part(|decision| !decision.is_allowed),
            borrowed: part(|decision| decision.answered_by == AnsweredBy::Borrowed),
            own_store: part(|decision| decision.answered_by == AnsweredBy::Store),
        }
    }
}
