//! Compares the Redis store with a plain Lua script and with `redis-benchmark` on one Redis server,
//! in interleaved rounds. `cargo xtask bench redis` runs it.
//!
//! For a profiler, `redis 64 three 2000` measures only the store, with 64 callers and three rules
//! for 2 s. Instead of `three`: `one`, `apart` (three rules with three owners) or `plain`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redis::Script;
use redis::aio::MultiplexedConnection;
use tidegate_bench::report::{MarkdownTable, machine_summary, median};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_limiter::Limiter;
use tidegate_redis::{DEFAULT_DEADLINE, RedisAddress, RedisOptions, RedisStore};
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::RedisServer;

/// The plain script: one token bucket and one call per decision, as in most libraries.
const PLAIN: &str = include_str!("plain.lua");

/// Rate per second, burst and cost of the plain script: the store's limit of 1 000 per hour.
const PLAIN_LIMIT: [&str; 3] = ["0.27778", "1000", "1"];

const KEYS: u64 = 100_000;
const ROUNDS: usize = 5;
/// Rounds of a comparison. There are many short ones, because ratios are taken within a round and
/// another busy process then disturbs only a few of them.
const COMPARISON_ROUNDS: usize = 15;
const TURN: Duration = Duration::from_millis(350);
const RULES: [&str; 3] = ["free-writes", "per-user", "per-ip"];

/// Columns of a latency table.
const PERCENTILES: [&str; 4] = ["p50", "p99", "p99.9", "max"];

fn main() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("build the tokio runtime");
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [callers, what, millis] = &args[..] {
        let number = |word: &str| word.parse().expect("CALLERS and MILLISECONDS are numbers");
        let (callers, turn) = (number(callers), Duration::from_millis(number(millis)));
        let contenders = runtime.block_on(RedisContenders::new(&server));
        let store = |layout| runtime.block_on(contenders.store_rate(callers, layout, turn));
        let per_second = match what.as_str() {
            "one" => store(RuleLayout::One),
            "three" => store(RuleLayout::Three),
            "apart" => store(RuleLayout::ThreeOwners),
            _ => runtime.block_on(contenders.plain_rate(callers, turn)),
        };
        println!("{per_second:.0} decisions/s");
        return;
    }
    println!("{}\n", machine_summary());
    println!("{}", bench_throughput(&runtime, &server));
    println!("{}", bench_overhead(&runtime, &server));
    println!("{}", bench_outage(&runtime));
    println!("{}", bench_key_bytes(&runtime));
}

/// The rules of a decision, and how their counters share Redis keys ("pages").
#[derive(Clone, Copy)]
enum RuleLayout {
    /// One rule.
    One,
    /// Three rules with the same owner: one page.
    Three,
    /// Three rules with three different owners: three pages.
    ThreeOwners,
}

/// The store and the plain script, both connected.
struct RedisContenders {
    store: Arc<RedisStore>,
    plain: MultiplexedConnection,
    script: Arc<Script>,
}

impl RedisContenders {
    async fn new(server: &RedisServer) -> Self {
        let address = RedisAddress::parse(&server.url()).expect("parse the Redis URL");
        let options = RedisOptions {
            deadline: Duration::from_secs(2),
            deny_cache: false,
            ..RedisOptions::new(address)
        };
        let store = RedisStore::start(&options);
        assert!(store.wait_ready(Duration::from_secs(5)).await, "{:?}", store.unavailable_reason());
        let client = redis::Client::open(server.url()).expect("parse the Redis URL");
        let plain =
            client.get_multiplexed_async_connection().await.expect("connect to the Redis server");
        Self { store: Arc::new(store), plain, script: Arc::new(Script::new(PLAIN)) }
    }

    /// Decisions per second of the store.
    async fn store_rate(&self, callers: u64, layout: RuleLayout, turn: Duration) -> f64 {
        let store = Arc::clone(&self.store);
        run_callers(callers, turn, move |draw| {
            let store = Arc::clone(&store);
            async move { decide(&store, draw, layout).await }
        })
        .await
    }

    /// Decisions per second of the plain script.
    async fn plain_rate(&self, callers: u64, turn: Duration) -> f64 {
        let (plain, script) = (self.plain.clone(), Arc::clone(&self.script));
        run_callers(callers, turn, move |draw| {
            decide_plain(plain.clone(), Arc::clone(&script), draw)
        })
        .await
    }
}

/// One decision by the plain script.
async fn decide_plain(mut plain: MultiplexedConnection, script: Arc<Script>, draw: u64) {
    let key = format!("plain:user:{draw}");
    let mut call = script.key(key);
    let reply: Vec<i64> =
        call.arg(&PLAIN_LIMIT).invoke_async(&mut plain).await.expect("a reply of the script");
    assert_eq!(reply.len(), 3);
}

/// The policy of every rule. Built once, as for real rules.
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let quota = Quota::new(1_000, Micros::from_secs(3_600));
    Policy::new(Algorithm::TokenBucket, quota).expect("a valid policy")
});

/// The key namespace of each rule. Built once, as for real rules.
static NAMESPACES: LazyLock<[Fingerprint; 3]> =
    LazyLock::new(|| RULES.map(|rule| Secret::UNSET.namespace(&[rule.as_bytes()])));

/// The counter key of a rule.
fn key(rule: usize, parts: [&[u8]; 2]) -> Key<'static> {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    parts.iter().for_each(|part| hasher.write_part(part));
    let namespace = NAMESPACES[rule];
    Key { rule: RULES[rule], fingerprint: hasher.finish() ^ namespace, namespace, part: None }
}

async fn decide(store: &RedisStore, draw: u64, layout: RuleLayout) {
    let user = draw.to_be_bytes();
    let owner: [&[u8]; 3] = match layout {
        // A different owner than in `Three`, so that its page holds only one record.
        RuleLayout::One => [b"client"; 3],
        RuleLayout::Three => [b"user"; 3],
        RuleLayout::ThreeOwners => [b"user", b"tenant", b"ip"],
    };
    let rules = if matches!(layout, RuleLayout::One) { 1 } else { 3 };
    let charges = [0, 1, 2].map(|rule| Charge::plain(key(rule, [owner[rule], &user]), &POLICY, 1));
    let mut readings = [Reading::default(); 3];
    let result = store.apply(Op::Charge, &charges[..rules], &mut readings[..rules]).await;
    result.expect("the store answers");
}

/// Runs the given number of callers; each sends its next request as soon as the last is answered.
/// Returns requests per second.
async fn run_callers<F: Future<Output = ()> + Send>(
    callers: u64,
    turn: Duration,
    request: impl Fn(u64) -> F + Send + Sync + 'static,
) -> f64 {
    let (request, stop) = (Arc::new(request), Arc::new(AtomicBool::new(false)));
    let count = Arc::new(AtomicU64::new(0));
    let start = now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (request, stop, count) = (Arc::clone(&request), Arc::clone(&stop), Arc::clone(&count));
        let mut draw = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                request((draw >> 33) % KEYS).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(turn).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(caller) = tasks.join_next().await {
        caller.expect("every request of the caller was answered");
    }
    count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

fn bench_throughput(runtime: &tokio::runtime::Runtime, server: &RedisServer) -> String {
    let contenders = runtime.block_on(RedisContenders::new(server));
    let mut table = MarkdownTable::new(&[
        "callers",
        "store, 1 rule",
        "3 rules, one owner",
        "3 rules, three owners",
        "plain script",
        "store / plain",
        "3 rules / 1, one owner",
        "3 rules / 1, three owners",
    ]);
    for callers in [1, 64, 256] {
        let run_round = |_| {
            let store = |layout| runtime.block_on(contenders.store_rate(callers, layout, TURN));
            let (one, three, three_owners) =
                (store(RuleLayout::One), store(RuleLayout::Three), store(RuleLayout::ThreeOwners));
            let plain = runtime.block_on(contenders.plain_rate(callers, TURN));
            [one, three, three_owners, plain, one / plain, one / three, one / three_owners]
        };
        let rounds: Vec<[f64; 7]> = (0..COMPARISON_ROUNDS).map(run_round).collect();
        let column =
            |index: usize| median(&rounds.iter().map(|round| round[index]).collect::<Vec<_>>());
        let mut row = vec![callers.to_string()];
        row.extend((0..4).map(|index| format!("{:.0}", column(index))));
        row.extend((4..7).map(|index| format!("{:.2}", column(index))));
        table.push_row(&row);
    }
    let mut ceiling = MarkdownTable::new(&["redis-benchmark, 64 connections", "-P 1", "-P 16"]);
    let sha = server.command(&["SCRIPT", "LOAD", PLAIN]).text();
    let [rate, burst, cost] = PLAIN_LIMIT;
    let evalsha = ["EVALSHA", &sha, "1", "plain:user:__rand_int__", rate, burst, cost];
    for (name, args) in [("EVALSHA of the plain script", &evalsha[..]), ("PING", &["PING"][..])] {
        let mut row = vec![name.to_owned()];
        row.extend(["1", "16"].map(|depth| {
            let mut turns = Vec::new();
            for _ in 0..3 {
                turns.push(redis_benchmark(server.port(), depth, args));
            }
            format!("{:.0}", median(&turns))
        }));
        ceiling.push_row(&row);
    }
    format!("### Decisions per second\n\n{table}\n{ceiling}")
}

fn redis_benchmark(port: u16, depth: &str, args: &[&str]) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-c", "64", "-n", "200000", "-r", "100000", "-P", depth])
        .args(["-q", "--csv"])
        .args(args)
        .output()
        .expect("run redis-benchmark");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().last().and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok());
    rate.unwrap_or_else(|| panic!("unexpected output of redis-benchmark: {text}"))
}

/// Measures the latency that the store adds to a round trip at a steady rate.
fn bench_overhead(runtime: &tokio::runtime::Runtime, server: &RedisServer) -> String {
    const RATE: u64 = 30_000;
    const SECONDS: u64 = 1;
    let contenders = runtime.block_on(RedisContenders::new(server));
    let mut table = latency_table("at 30 000/s, microseconds");
    let mut rows = [const { Vec::new() }; 3];
    for _ in 0..COMPARISON_ROUNDS {
        let store = Arc::clone(&contenders.store);
        rows[0].push(measure_paced(runtime, RATE, SECONDS, move |draw| {
            let store = Arc::clone(&store);
            async move { decide(&store, draw, RuleLayout::One).await }
        }));
        let (plain, script) = (contenders.plain.clone(), Arc::clone(&contenders.script));
        rows[1].push(measure_paced(runtime, RATE, SECONDS, move |draw| {
            decide_plain(plain.clone(), Arc::clone(&script), draw)
        }));
        let plain = contenders.plain.clone();
        rows[2].push(measure_paced(runtime, RATE, SECONDS, move |_| {
            let mut plain = plain.clone();
            async move {
                let _: String =
                    redis::cmd("PING").query_async(&mut plain).await.expect("a reply to PING");
            }
        }));
    }
    let names = ["store, 1 rule", "plain script", "PING, same client"];
    for (name, rounds) in names.iter().zip(&rows) {
        push_medians(&mut table, name, rounds);
    }
    let added = |percentile: usize| {
        let rounds = rows[0].iter().zip(&rows[1]);
        let added = rounds.map(|(store, plain)| store[percentile] - plain[percentile]);
        median(&added.collect::<Vec<_>>())
    };
    format!(
        "### Latency\n\n{table}\nWithin a round, the store differs from the plain script by \
         {:+.0} µs at p50 and {:+.0} µs at p99.\n",
        added(0),
        added(1)
    )
}

/// Measures decision latency while the Redis server is paused. The fallback (`on_fail`) must decide
/// by the deadline.
fn bench_outage(runtime: &tokio::runtime::Runtime) -> String {
    const RATE: u64 = 5_000;
    const SECONDS: u64 = 2;
    let server = RedisServer::start();
    let document = "rules:\n  - id: per-user\n    key_by: user_id\n    \
                    limit: { requests: 1000, window: 1h }\n";
    let document = Document::parse("rules.yaml", document).expect("parse the document");
    let rules = RuleSet::compile(&document, Secret::UNSET).expect("compile the rules");
    let address = RedisAddress::parse(&server.url()).expect("parse the Redis URL");
    let store = runtime.block_on(async { RedisStore::start(&RedisOptions::new(address)) });
    assert!(
        runtime.block_on(store.wait_ready(Duration::from_secs(5))),
        "{:?}",
        store.unavailable_reason()
    );
    let limiter = Arc::new(Limiter::new(store, rules));
    let is_available = || limiter.store().unavailable_reason().is_none();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        eventually("the store is available", is_available);
        server.process().pause();
        rounds.push(measure_paced(runtime, RATE, SECONDS, |draw| {
            let limiter = Arc::clone(&limiter);
            async move {
                let user = draw.to_string();
                let facts: Facts<'_> = [("user_id", user.as_str())].into_iter().collect();
                let decision = limiter.decide(&facts, 1).await;
                assert!(decision.is_allowed() && decision.answered_by() == AnsweredBy::Fallback);
            }
        }));
        server.process().resume();
    }
    let mut table = latency_table("at 5 000/s, microseconds");
    let name = format!("store paused, deadline {DEFAULT_DEADLINE:?}");
    let medians = push_medians(&mut table, &name, &rounds);
    let over = medians[2] - DEFAULT_DEADLINE.as_secs_f64() * 1e6;
    format!("### Store outage\n\n{table}\nThe p99.9 is {over:+.0} µs from the deadline.\n")
}

fn latency_table(what: &str) -> MarkdownTable {
    MarkdownTable::new(&[&[what], &PERCENTILES[..]].concat())
}

/// Adds a row with the median latencies over all rounds, and returns them.
fn push_medians(
    table: &mut MarkdownTable,
    name: &str,
    rounds: &[[f64; PERCENTILES.len()]],
) -> [f64; PERCENTILES.len()] {
    let column = |i| median(&rounds.iter().map(|round| round[i]).collect::<Vec<_>>());
    let medians = std::array::from_fn(column);
    let cells = medians.map(|each: f64| format!("{each:.0}"));
    table.push_row(&[vec![name.to_owned()], cells.to_vec()].concat());
    medians
}

/// Starts requests at a steady rate, whether or not earlier ones were answered, and returns their
/// latencies. The calling thread paces and mostly sleeps, so the runtime's worker is free for
/// responses.
fn measure_paced<F: Future<Output = ()> + Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    rate: u64,
    seconds: u64,
    request: impl Fn(u64) -> F,
) -> [f64; PERCENTILES.len()] {
    let (latency_tx, mut latency_rx) = tokio::sync::mpsc::unbounded_channel();
    let start = now();
    let mut sent = 0;
    while sent < rate * seconds {
        let due = u64::try_from(start.elapsed().as_micros()).unwrap_or(0) * rate / 1_000_000;
        while sent < due {
            let latency_tx = latency_tx.clone();
            let response = request(sent.wrapping_mul(2_654_435_761) % KEYS);
            let sent_at = now();
            runtime.spawn(async move {
                response.await;
                _ = latency_tx.send(sent_at.elapsed().as_secs_f64() * 1e6);
            });
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    drop(latency_tx);
    let mut all = Vec::new();
    while let Some(latency) = latency_rx.blocking_recv() {
        all.push(latency);
    }
    // Leaving out unanswered requests would make the latencies look better than they are.
    assert_eq!(all.len() as u64, sent, "some requests were not answered: the machine is too busy");
    all.sort_by(f64::total_cmp);
    let at = |permille: usize| all[(all.len() - 1) * permille / 1_000];
    [at(500), at(990), at(999), at(1_000)]
}

/// Measures bytes per owner by algorithm: the growth of `used_memory` over many owners.
fn bench_key_bytes(runtime: &tokio::runtime::Runtime) -> String {
    const COUNT: u64 = 20_000;
    let mut table =
        MarkdownTable::new(&["algorithm", "bytes per owner", "`MEMORY USAGE` of one key"]);
    let used = |server: &RedisServer| {
        let info = server.command(&["INFO", "memory"]).text();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|digits| digits.trim().parse::<f64>().ok())
            .expect("INFO memory reports used_memory")
    };
    for (algorithm, requests, rules, times) in [
        (Algorithm::TokenBucket, 10, 1, 2),
        (Algorithm::TokenBucket, 10, 3, 2),
        (Algorithm::FixedWindow, 10, 1, 2),
        (Algorithm::SlidingWindowCounter, 10, 1, 2),
        (Algorithm::SlidingWindowLog, 10, 1, 10),
        (Algorithm::SlidingWindowLog, 1_000, 1, 1_000),
    ] {
        let count = if times > 100 { COUNT / 100 } else { COUNT };
        let server = RedisServer::start();
        let contenders = runtime.block_on(RedisContenders::new(&server));
        let quota = Quota::new(requests, Micros::from_secs(3_600));
        let policy = Policy::new(algorithm, quota).expect("a valid policy");
        let before = used(&server);
        runtime.block_on(async {
            for user in 0..count {
                let key = |rule| key(rule, [b"user", &user.to_be_bytes()]);
                let charges: Vec<_> =
                    (0..rules).map(|rule| Charge::plain(key(rule), &policy, 1)).collect();
                for _ in 0..times {
                    let mut readings = vec![Reading::default(); rules];
                    let result = contenders.store.apply(Op::Charge, &charges, &mut readings).await;
                    result.expect("the store answers");
                }
            }
        });
        let grown = (used(&server) - before) / count as f64;
        let name = server.command(&["RANDOMKEY"]).text();
        let one = server.command(&["MEMORY", "USAGE", &name]).text();
        let suffix = match (rules, times) {
            (1, 2) => String::new(),
            (1, entries) => format!(", {entries} entries"),
            (rules, _) => format!(", {rules} rules"),
        };
        table.push_row(&[format!("{algorithm}{suffix}"), format!("{grown:.0}"), one]);
    }
    format!("### Memory\n\n{table}")
}
