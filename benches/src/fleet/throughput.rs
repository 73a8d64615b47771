//! Decisions per second of nodes under full load: each caller makes its next decision as soon as it
//! has the last one.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::node::{FleetNode, NodeLimiter, start_nodes};
use super::{FleetMode, verdict};
use crate::load::{KeyDistribution, KeyStream};
use crate::report::{MarkdownTable, median};

/// Length of the measured part of a turn.
const TURN: Duration = Duration::from_millis(500);

/// The part of a turn before that.
const MIN_WARM_UP: Duration = Duration::from_millis(250);

/// Concurrent callers of each node, as many as the exact mode needs to be fastest.
const CALLERS: usize = 256;

/// A caller lets the other tasks of its thread run after this many decisions, as a connection does
/// after a request.
const DECISIONS_PER_YIELD: usize = 64;

const COLD_KEYS: usize = 1_000_000;

/// The keys of the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetKeys {
    /// One key.
    Hot,
    /// A million keys, by Zipf's law.
    Zipf,
    /// A million keys, equally likely.
    Uniform,
}

impl FleetKeys {
    /// All key sets, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Hot, Self::Zipf, Self::Uniform];

    const fn name(self) -> &'static str {
        match self {
            Self::Hot => "one hot key",
            Self::Zipf => "1 000 000, Zipf",
            Self::Uniform => "1 000 000, uniform",
        }
    }

    fn stream(self) -> KeyStream {
        match self {
            Self::Hot => KeyStream::every_key(1),
            Self::Zipf => KeyStream::random_keys(KeyDistribution::Zipf, COLD_KEYS, 7),
            Self::Uniform => KeyStream::random_keys(KeyDistribution::Uniform, COLD_KEYS, 7),
        }
    }

    /// The modes that are compared. Longer intervals only matter where many keys are lukewarm.
    const fn modes(self) -> &'static [FleetMode] {
        match self {
            Self::Zipf => &[
                FleetMode::EXACT,
                FleetMode::LEASED,
                FleetMode::ASYNC,
                FleetMode::LEASED_LONG,
                FleetMode::ASYNC_LONG,
            ],
            Self::Hot | Self::Uniform => &[FleetMode::EXACT, FleetMode::LEASED, FleetMode::ASYNC],
        }
    }
}

/// The nodes of one contender, and the keys that it decides on.
struct FleetContender {
    mode: FleetMode,
    nodes: Vec<FleetNode>,
    /// Where in the stream the next turn begins, so that turns use different keys.
    next: usize,
    turns: Vec<FleetTurn>,
}

/// Result of one turn.
#[derive(Clone, Copy, Debug)]
pub struct FleetTurn {
    /// Decisions per second of all nodes.
    per_second: f64,
    /// Share of them that a node made without asking the store.
    local: f64,
    /// Requests to the store per second and node.
    store_requests: f64,
}

/// The contenders for one table row group.
struct Comparison {
    keys: FleetKeys,
    stream: Arc<KeyStream>,
    nodes: u32,
    contenders: Vec<FleetContender>,
}

/// All comparisons, with one fleet for each contender.
pub struct ThroughputBench<'a> {
    runtime: &'a Runtime,
    comparisons: Vec<Comparison>,
}

impl<'a> ThroughputBench<'a> {
    /// Starts the fleets.
    #[must_use]
    pub fn start(runtime: &'a Runtime, server: &RedisServer, keys: &[FleetKeys]) -> Self {
        let streams: Vec<_> = keys.iter().map(|keys| Arc::new(keys.stream())).collect();
        let mut comparisons = Vec::new();
        for nodes in [1, 2] {
            for (keys, stream) in keys.iter().copied().zip(&streams) {
                let contender = |mode: &FleetMode| FleetContender {
                    mode: *mode,
                    nodes: start_nodes(
                        runtime,
                        server,
                        &format!("{nodes}-{keys:?}-{}", mode.name),
                        nodes,
                        &rules(*mode),
                    ),
                    next: 0,
                    turns: Vec::new(),
                };
                let contenders = keys.modes().iter().map(contender).collect();
                comparisons.push(Comparison {
                    keys,
                    stream: Arc::clone(stream),
                    nodes,
                    contenders,
                });
            }
        }
        Self { runtime, comparisons }
    }

    /// Runs rounds in which every contender takes a turn; the order is reversed every other round.
    pub fn run_rounds(&mut self, rounds: usize) {
        for round in 0..rounds {
            for Comparison { keys, stream, nodes, contenders } in &mut self.comparisons {
                let run = |contender: &mut FleetContender| {
                    let turn = contender.run_turn(self.runtime, stream);
                    let mode = contender.mode.name;
                    eprintln!("round {round}: {nodes} nodes, {}, {mode}: {turn:.2?}", keys.name());
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
            "keys, nodes",
            "mode",
            "decisions/s",
            "× exact",
            "decided locally",
            "store requests/s per node",
        ]);
        for comparison in &self.comparisons {
            for contender in &comparison.contenders {
                let column = |field: fn(&FleetTurn) -> f64| {
                    median(&contender.turns.iter().map(field).collect::<Vec<_>>())
                };
                table.push_row(&[
                    format!("{}, {}", comparison.keys.name(), comparison.nodes),
                    contender.mode.name.to_owned(),
                    format!("{:.0}", column(|turn| turn.per_second)),
                    format!("{:.2}", comparison.ratio_to_exact(contender)),
                    format!("{:.0} %", 100.0 * column(|turn| turn.local)),
                    format!("{:.0}", column(|turn| turn.store_requests)),
                ]);
            }
        }
        table
    }

    /// Adds a row for each goal.
    pub fn push_goals(&self, table: &mut MarkdownTable) {
        for Comparison { nodes, .. } in
            self.comparisons.iter().filter(|it| it.keys == FleetKeys::Hot)
        {
            let (ratio, requests) = self.leased(FleetKeys::Hot, *nodes);
            push_ratio(table, &format!("one hot key, {nodes} nodes"), 10.0, ratio);
            table.push_row(&[
                format!("one hot key, {nodes} nodes: ≤ 20 store requests/s per node"),
                format!("{} ({requests:.1})", verdict(requests <= 20.0)),
            ]);
        }
        for (keys, at_least) in [(FleetKeys::Zipf, 3.0), (FleetKeys::Uniform, 0.9)] {
            for Comparison { nodes, .. } in self.comparisons.iter().filter(|it| it.keys == keys) {
                let (ratio, _) = self.leased(keys, *nodes);
                push_ratio(table, &format!("{}, {nodes} nodes", keys.name()), at_least, ratio);
            }
        }
    }

    /// How the leased mode compares with the exact one, and its requests to the store.
    fn leased(&self, keys: FleetKeys, nodes: u32) -> (f64, f64) {
        let comparison = self.comparisons.iter().find(|it| it.keys == keys && it.nodes == nodes);
        let comparison = comparison.expect("the comparison was run");
        let leased = comparison.contenders.iter().find(|it| it.mode == FleetMode::LEASED);
        let leased = leased.expect("every comparison has a leased contender");
        let requests = leased.turns.iter().map(|turn| turn.store_requests).collect::<Vec<_>>();
        (comparison.ratio_to_exact(leased), median(&requests))
    }
}

fn push_ratio(table: &mut MarkdownTable, what: &str, at_least: f64, ratio: f64) {
    table.push_row(&[
        format!("{what}: leased ≥ {at_least} × exact"),
        format!("{} ({ratio:.2})", verdict(ratio >= at_least)),
    ]);
}

impl Comparison {
    /// The median over rounds of the speed relative to the exact mode in the same round.
    fn ratio_to_exact(&self, contender: &FleetContender) -> f64 {
        let exact = self.contenders.iter().find(|it| it.mode == FleetMode::EXACT);
        let exact = exact.expect("every comparison has an exact contender");
        let pairs = contender.turns.iter().zip(&exact.turns);
        median(&pairs.map(|(turn, exact)| turn.per_second / exact.per_second).collect::<Vec<_>>())
    }
}

/// The burst is so large that no request is refused. Refusals would be cheap in every mode.
fn rules(mode: FleetMode) -> String {
    format!(
        "rules:\n- id: fleet\n  key_by: api_key\n  limit: {{ requests: 10, window: 1s, burst: \
         1000000000 }}\n  {}\n",
        mode.setting.replace(", ", "\n  ")
    )
}

const WARMING_UP: u8 = 0;
const COUNTING: u8 = 1;
const STOPPED: u8 = 2;

impl FleetContender {
    fn run_turn(&mut self, runtime: &Runtime, stream: &Arc<KeyStream>) -> FleetTurn {
        let phase = Arc::new(AtomicU8::new(WARMING_UP));
        let mut callers = JoinSet::new();
        for node in &self.nodes {
            for _ in 0..CALLERS {
                self.next = (self.next + stream.len() / CALLERS + 1) % stream.len();
                let (limiter, stream) = (Arc::clone(&node.limiter), Arc::clone(stream));
                let caller = run_caller(limiter, stream, self.next, Arc::clone(&phase));
                callers.spawn_on(caller, runtime.handle());
            }
        }
        // Leases and views have ended since the last turn.
        std::thread::sleep(self.warm_up());
        let requests = || self.nodes.iter().map(FleetNode::store_requests).sum::<u64>();
        let (before, start) = (requests(), Instant::now());
        phase.store(COUNTING, Ordering::Relaxed);
        std::thread::sleep(TURN);
        phase.store(STOPPED, Ordering::Relaxed);
        let (seconds, sent) = (start.elapsed().as_secs_f64(), requests() - before);
        let counts = runtime.block_on(callers.join_all());
        let sum = |field: fn(&Counts) -> u64| counts.iter().map(field).sum::<u64>() as f64;
        let (local, all) = (sum(|counts| counts.local), sum(|counts| counts.all));
        FleetTurn {
            per_second: all / seconds,
            local: local / all,
            store_requests: sent as f64 / seconds / self.nodes.len() as f64,
        }
    }

    /// Long enough that a lease and the one after it have begun.
    fn warm_up(&self) -> Duration {
        MIN_WARM_UP.max(2 * self.mode.interval)
    }
}

/// Decisions of one caller.
struct Counts {
    all: u64,
    /// Those that the node made without the store.
    local: u64,
}

async fn run_caller(
    limiter: Arc<NodeLimiter>,
    stream: Arc<KeyStream>,
    mut at: usize,
    phase: Arc<AtomicU8>,
) -> Counts {
    let mut counts = Counts { all: 0, local: 0 };
    loop {
        for _ in 0..DECISIONS_PER_YIELD {
            let facts: Facts<'_> = [("api_key", stream.key_at(at))].into_iter().collect();
            at = if at + 1 == stream.len() { 0 } else { at + 1 };
            let decision = limiter.decide(&facts, 1).await;
            let by = decision.answered_by();
            assert!(
                decision.is_allowed() && by != AnsweredBy::Fallback,
                "wrong answer by {by:?}: {:?}",
                limiter.store().stats()
            );
            match phase.load(Ordering::Relaxed) {
                WARMING_UP => {}
                COUNTING => {
                    counts.all += 1;
                    counts.local += u64::from(matches!(by, AnsweredBy::Lease | AnsweredBy::Async));
                }
                _ => return counts,
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Runs one contender for a profiler: `hot`, `zipf` or `uniform` keys on this many nodes.
///
/// # Panics
/// When the keys or the mode are unknown.
pub fn profile(runtime: &Runtime, server: &RedisServer, keys: &str, mode: &str, nodes: u32) {
    let keys = match keys {
        "hot" => FleetKeys::Hot,
        "zipf" => FleetKeys::Zipf,
        "uniform" => FleetKeys::Uniform,
        _ => panic!("unknown keys `{keys}`: use hot, zipf or uniform"),
    };
    let mode = match mode {
        "exact" => FleetMode::EXACT,
        "leased" => FleetMode::LEASED,
        "leased-long" => FleetMode::LEASED_LONG,
        "async" => FleetMode::ASYNC,
        "async-long" => FleetMode::ASYNC_LONG,
        _ => panic!("unknown mode `{mode}`: use exact, leased, leased-long, async or async-long"),
    };
    let stream = Arc::new(keys.stream());
    let nodes = start_nodes(runtime, server, "profile", nodes, &rules(mode));
    let mut contender = FleetContender { mode, nodes, next: 0, turns: Vec::new() };
    for _ in 0..5 {
        println!("{:.2?}", contender.run_turn(runtime, &stream));
    }
}
