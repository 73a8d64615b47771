//! How many calls a node makes to the stores of other regions when many keys borrow.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::Facts;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::nodes::{ExchangeTotals, LinkedStores, RegionNodes};
use super::{REGIONS, RegionMode};
use crate::demand::TICK;
use crate::fleet::node::NodeLimiter;
use crate::fleet::verdict;
use crate::load::key;
use crate::report::MarkdownTable;

/// How long the calls are counted.
const TURN: Duration = Duration::from_secs(3);

/// Concurrent callers, each with separate keys.
const CALLERS: usize = 256;

/// A caller lets the other tasks of its thread run after this many decisions.
const DECISIONS_PER_YIELD: usize = 64;

/// Costs that use up the burst of the share.
const FIRST_COSTS: [u32; 3] = [5, 3, 2];

/// The goals: one batch every 100 ms, or at least half of what a call can contain.
const MOST_CALLS: f64 = 20.0;
const LEAST_QUESTIONS: f64 = 64.0;

/// The goal for the part of questions that are answered.
const LEAST_ANSWERED: f64 = 0.95;

/// Keys that borrow, and the terms under which they do.
#[derive(Clone, Copy, Debug)]
struct BorrowLoad {
    keys: usize,
    /// Requests per second and key: 1.5 times the limit, three times the share.
    demand: f64,
    limit: &'static str,
    terms: &'static str,
    /// How long the keys borrow before the calls count.
    warm_up: Duration,
}

const fn busy_keys(keys: usize) -> BorrowLoad {
    let warm_up = Duration::from_secs(2);
    BorrowLoad { keys, demand: 15.0, limit: "10/s burst 20", terms: "ttl: 500ms", warm_up }
}

/// The same ten times as slow, because a machine cannot make more decisions.
const fn lukewarm_keys(keys: usize) -> BorrowLoad {
    let limit = "{ requests: 10, window: 10s, burst: 20 }";
    let warm_up = Duration::from_secs(6);
    BorrowLoad { keys, demand: 1.5, limit, terms: "ttl: 5s, every: 1s", warm_up }
}

const LOADS: [BorrowLoad; 6] = [
    busy_keys(1),
    busy_keys(100),
    busy_keys(1_000),
    busy_keys(10_000),
    lukewarm_keys(10_000),
    lukewarm_keys(100_000),
];

/// Result under one load.
#[derive(Clone, Copy, Debug)]
pub struct HotKeysRun {
    load: BorrowLoad,
    decisions: u64,
    borrowed: u64,
    exchange: ExchangeTotals,
    asked: u64,
    unanswered: u64,
    seconds: f64,
}

/// Decisions of all callers.
#[derive(Debug, Default)]
struct BorrowCounts {
    all: AtomicU64,
    borrowed: AtomicU64,
}

/// Runs the loads one after the other.
#[must_use]
pub fn run(runtime: &Runtime, stores: &LinkedStores) -> Vec<HotKeysRun> {
    LOADS.into_iter().map(|load| load.run(runtime, stores)).collect()
}

impl BorrowLoad {
    fn run(self, runtime: &Runtime, stores: &LinkedStores) -> HotKeysRun {
        let mode = RegionMode::Borrowing;
        let name = format!("hot-{}-{}", self.keys, self.demand);
        let rules = mode.rules(self.limit, self.terms);
        let nodes = RegionNodes::start(runtime, stores, &name, mode, &rules, [1; 3]);
        let (counts, callers) = (Arc::<BorrowCounts>::default(), self.keys.min(CALLERS));
        let mut tasks = JoinSet::new();
        for limiter in nodes.limiters(0) {
            for caller in 0..callers {
                let keys: Vec<String> = (caller..self.keys).step_by(callers).map(key).collect();
                let caller =
                    run_caller(Arc::clone(limiter), keys, self.demand, Arc::clone(&counts));
                tasks.spawn_on(caller, runtime.handle());
            }
        }
        std::thread::sleep(self.warm_up);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let now = || ([read(&counts.all), read(&counts.borrowed)], nodes.exchange_totals());
        let (before, questions, start) = (now(), nodes.questions(0), Instant::now());
        std::thread::sleep(TURN);
        let (after, seconds) = (now(), start.elapsed().as_secs_f64());
        let [asked, unanswered] = nodes.questions(0);
        runtime.block_on(tasks.shutdown());
        let run = HotKeysRun {
            load: self,
            decisions: after.0[0] - before.0[0],
            borrowed: after.0[1] - before.0[1],
            exchange: after.1 - before.1,
            asked: asked - questions[0],
            unanswered: unanswered - questions[1],
            seconds,
        };
        eprintln!("{run:?}");
        run
    }
}

/// Decides about these keys in turn, each at the given rate. Too slow a machine makes it lower.
async fn run_caller(
    limiter: Arc<NodeLimiter>,
    keys: Vec<String>,
    rate: f64,
    counts: Arc<BorrowCounts>,
) {
    for key in &keys {
        for cost in FIRST_COSTS {
            decide(&limiter, key, cost).await;
        }
    }
    let (start, rate) = (Instant::now(), rate * keys.len() as f64);
    for (done, key) in keys.iter().cycle().enumerate() {
        while done as f64 > rate * start.elapsed().as_secs_f64() {
            tokio::time::sleep(TICK).await;
        }
        if done % DECISIONS_PER_YIELD == 0 {
            tokio::task::yield_now().await;
        }
        let by = decide(&limiter, key, 1).await;
        counts.all.fetch_add(1, Ordering::Relaxed);
        counts.borrowed.fetch_add(u64::from(by == AnsweredBy::Borrowed), Ordering::Relaxed);
    }
}

async fn decide(limiter: &NodeLimiter, key: &str, cost: u32) -> AnsweredBy {
    let facts: Facts<'_> = [("api_key", key)].into_iter().collect();
    let by = limiter.decide(&facts, cost).await.answered_by();
    assert!(by != AnsweredBy::Fallback, "{:?}", limiter.store().stats());
    by
}

/// The results.
#[must_use]
pub fn results_table(runs: &[HotKeysRun]) -> MarkdownTable {
    let mut table = MarkdownTable::new(&[
        "hot keys, terms",
        "requests/s",
        "borrowed/s",
        "calls/s to each region",
        "questions/s to each region",
        "questions per call",
        "unanswered",
    ]);
    for run in runs {
        let ExchangeTotals { calls, requests, .. } = run.exchange;
        table.push_row(&[
            format!("{}, `{}`", run.load.keys, run.load.terms),
            format!("{:.0}", run.decisions as f64 / run.seconds),
            format!("{:.0}", run.borrowed as f64 / run.seconds),
            format!("{:.1}", run.per_link(calls)),
            format!("{:.0}", run.per_link(requests)),
            format!("{:.1}", run.questions_per_call()),
            format!("{:.1} %", 100.0 * (1.0 - run.answered())),
        ]);
    }
    table
}

/// Adds a row for each goal.
pub fn push_goals(runs: &[HotKeysRun], table: &mut MarkdownTable) {
    for run in runs {
        let (rate, size) = (run.per_link(run.exchange.calls), run.questions_per_call());
        let keys = format!("{} hot keys, `{}`", run.load.keys, run.load.terms);
        table.push_row(&[
            format!(
                "{keys}: ≤ {MOST_CALLS} calls/s to each region, or ≥ {LEAST_QUESTIONS} questions \
                 per call"
            ),
            format!(
                "{} ({rate:.1}/s, {size:.1} each)",
                verdict(rate <= MOST_CALLS || size >= LEAST_QUESTIONS)
            ),
        ]);
        let answered = run.answered();
        table.push_row(&[
            format!("{keys}: ≥ {:.0} % of questions answered", 100.0 * LEAST_ANSWERED),
            format!("{} ({:.1} %)", verdict(answered >= LEAST_ANSWERED), 100.0 * answered),
        ]);
    }
}

impl HotKeysRun {
    fn per_link(&self, count: u64) -> f64 {
        let links = REGIONS.len() - 1;
        count as f64 / self.seconds / links as f64
    }

    fn questions_per_call(&self) -> f64 {
        self.exchange.requests as f64 / self.exchange.calls.max(1) as f64
    }

    /// The part of the questions that were answered. By the limiter's count, which includes those
    /// that were not sent.
    fn answered(&self) -> f64 {
        1.0 - self.unanswered as f64 / self.asked.max(1) as f64
    }
}
