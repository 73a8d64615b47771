//! Decisions per second of one region's nodes under full load, with fixed shares and with
//! borrowing, beside a single region.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::RegionMode;
use super::nodes::{LinkedStores, RegionNodes};
use crate::fleet::node::NodeLimiter;
use crate::fleet::verdict;
use crate::load::key;
use crate::report::{MarkdownTable, median};

/// Long enough that borrowing has begun.
const WARM_UP: Duration = Duration::from_millis(400);
const TURN: Duration = Duration::from_millis(500);

const NODES: u32 = 2;
const KEYS: usize = 10;

/// Concurrent callers of each node.
const CALLERS: usize = 64;

/// A caller lets the other tasks of its thread run after this many decisions.
const DECISIONS_PER_YIELD: usize = 64;

/// The goal for decisions per second relative to a single region.
const LEAST: f64 = 0.9;

/// What comes of the decisions, and the limit of each key.
const LOADS: [(&str, &str); 2] = [
    ("all admitted by the share", "10/s burst 1000000000"),
    ("nearly all refused", "20000/s burst 20000"),
];

struct LoadedContender {
    mode: RegionMode,
    nodes: RegionNodes,
    turns: Vec<LoadedTurn>,
}

/// Result of one turn.
#[derive(Clone, Copy, Debug, Default)]
struct LoadedTurn {
    /// Decisions per second of all nodes.
    per_second: f64,
    /// Decisions per second with borrowed units.
    borrowed: f64,
}

/// One contender for each load and mode.
pub struct LoadBench<'a> {
    runtime: &'a Runtime,
    loads: Vec<(&'static str, Vec<LoadedContender>)>,
}

impl<'a> LoadBench<'a> {
    /// Starts the nodes.
    #[must_use]
    pub fn start(runtime: &'a Runtime, stores: &LinkedStores) -> Self {
        let load = |(index, (load, limit)): (usize, (&'static str, &str))| {
            let contender = |mode: RegionMode| {
                let lenders = u32::from(mode == RegionMode::Borrowing);
                let (name, counts) = (format!("load-{index}"), [NODES, lenders, lenders]);
                let rules = mode.rules(limit, "");
                let nodes = RegionNodes::start(runtime, stores, &name, mode, &rules, counts);
                LoadedContender { mode, nodes, turns: Vec::new() }
            };
            (load, Vec::from(RegionMode::ALL.map(contender)))
        };
        Self { runtime, loads: LOADS.into_iter().enumerate().map(load).collect() }
    }

    /// Runs rounds in which every contender takes a turn; the order is reversed every other round.
    pub fn run_rounds(&mut self, rounds: usize) {
        for round in 0..rounds {
            for (load, contenders) in &mut self.loads {
                let run = |contender: &mut LoadedContender| {
                    let turn = contender.run_turn(self.runtime);
                    eprintln!("round {round}: {load}, {:?}: {turn:.0?}", contender.mode);
                    contender.turns.push(turn);
                };
                match round % 2 {
                    0 => contenders.iter_mut().for_each(run),
                    _ => contenders.iter_mut().rev().for_each(run),
                }
            }
        }
    }

    /// The results.
    #[must_use]
    pub fn table(&self) -> MarkdownTable {
        let mut table = MarkdownTable::new(&[
            "decisions",
            "rule",
            "decisions/s",
            "of them borrowed",
            "× one region",
        ]);
        for (load, contenders) in &self.loads {
            for contender in contenders {
                let column = |field: fn(&LoadedTurn) -> f64| {
                    median(&contender.turns.iter().map(field).collect::<Vec<_>>())
                };
                table.push_row(&[
                    (*load).to_owned(),
                    contender.mode.name().to_owned(),
                    format!("{:.0}", column(|turn| turn.per_second)),
                    format!("{:.0}", column(|turn| turn.borrowed)),
                    format!("{:.2}", ratio(contender, contenders)),
                ]);
            }
        }
        table
    }

    /// Adds a row for each goal.
    pub fn push_goals(&self, table: &mut MarkdownTable) {
        for (load, contenders) in &self.loads {
            for contender in contenders.iter().filter(|it| it.mode == RegionMode::Borrowing) {
                let ratio = ratio(contender, contenders);
                table.push_row(&[
                    format!("{load}: decisions/s with borrowing ≥ {LEAST} × one region"),
                    format!("{} ({ratio:.2})", verdict(ratio >= LEAST)),
                ]);
            }
        }
    }
}

/// The median over rounds of the speed relative to one region in the same round.
fn ratio(contender: &LoadedContender, contenders: &[LoadedContender]) -> f64 {
    let one = contenders.iter().filter(|it| it.mode == RegionMode::OneRegion);
    let pairs = contender.turns.iter().zip(one.flat_map(|it| &it.turns));
    median(&pairs.map(|(turn, one)| turn.per_second / one.per_second).collect::<Vec<_>>())
}

const WARMING_UP: u8 = 0;
const COUNTING: u8 = 1;
const STOPPED: u8 = 2;

impl LoadedContender {
    fn run_turn(&self, runtime: &Runtime) -> LoadedTurn {
        let phase = Arc::new(AtomicU8::new(WARMING_UP));
        let mut callers = JoinSet::new();
        for limiter in self.nodes.limiters(0) {
            for caller in 0..CALLERS {
                let caller = run_caller(Arc::clone(limiter), caller, Arc::clone(&phase));
                callers.spawn_on(caller, runtime.handle());
            }
        }
        std::thread::sleep(WARM_UP);
        let start = Instant::now();
        phase.store(COUNTING, Ordering::Relaxed);
        std::thread::sleep(TURN);
        phase.store(STOPPED, Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let counts = runtime.block_on(callers.join_all());
        let sum = |field: fn(&CallerCounts) -> u64| counts.iter().map(field).sum::<u64>() as f64;
        LoadedTurn {
            per_second: sum(|counts| counts.all) / seconds,
            borrowed: sum(|counts| counts.borrowed) / seconds,
        }
    }
}

/// Decisions of one caller.
#[derive(Default)]
struct CallerCounts {
    all: u64,
    borrowed: u64,
}

async fn run_caller(
    limiter: Arc<NodeLimiter>,
    mut at: usize,
    phase: Arc<AtomicU8>,
) -> CallerCounts {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let mut counts = CallerCounts::default();
    loop {
        for _ in 0..DECISIONS_PER_YIELD {
            at = (at + 1) % KEYS;
            let facts: Facts<'_> = [("api_key", keys[at].as_str())].into_iter().collect();
            let by = limiter.decide(&facts, 1).await.answered_by();
            assert!(by != AnsweredBy::Fallback, "{:?}", limiter.store().stats());
            match phase.load(Ordering::Relaxed) {
                WARMING_UP => {}
                COUNTING => {
                    counts.all += 1;
                    counts.borrowed += u64::from(by == AnsweredBy::Borrowed);
                }
                _ => return counts,
            }
        }
        tokio::task::yield_now().await;
    }
}
