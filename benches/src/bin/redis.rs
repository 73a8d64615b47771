//! The Redis store against the plain way and against `redis-benchmark`, on one server, in one run.
//!
//! Rounds interleave. `redis 64 three 2000` measures only the store, with 64 callers and three rules
//! for 2 s, for a profiler; `one`, `apart` (three rules by three owners) and `plain` are the others.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redis::Script;
use redis::aio::MultiplexedConnection;
use tidegate_bench::report::{Table, machine, median};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_engine::Limiter;
use tidegate_redis::{Address, DEFAULT_DEADLINE, Options, RedisStore};
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::Server;

/// The plain way: one token bucket, one call, as most libraries do it.
const PLAIN: &str = include_str!("plain.lua");

/// Its rate a second, burst and cost: the store's limit of 1 000 an hour.
const PLAIN_LIMIT: [&str; 3] = ["0.27778", "1000", "1"];

const KEYS: u64 = 100_000;
const ROUNDS: usize = 5;
/// What is compared with another has more and shorter turns: it is compared within a round, and a busy
/// neighbour then spoils some of them.
const RACES: usize = 15;
const TURN: Duration = Duration::from_millis(350);
const RULES: [&str; 3] = ["free-writes", "per-user", "per-ip"];

/// What is told of latencies.
const SHARES: [&str; 4] = ["p50", "p99", "p99.9", "most"];

fn main() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [callers, what, millis] = &words[..] {
        let number = |word: &str| word.parse().expect("a number");
        let (callers, turn) = (number(callers), Duration::from_millis(number(millis)));
        let contenders = runtime.block_on(Contenders::new(&server));
        let store = |asked| runtime.block_on(contenders.store(callers, asked, turn));
        let per_second = match what.as_str() {
            "one" => store(Asked::One),
            "three" => store(Asked::Three),
            "apart" => store(Asked::Apart),
            _ => runtime.block_on(contenders.plain(callers, turn)),
        };
        println!("{per_second:.0} decisions/s");
        return;
    }
    println!("{}\n", machine());
    println!("{}", throughput(&runtime, &server));
    println!("{}", overhead(&runtime, &server));
    println!("{}", gone(&runtime));
    println!("{}", bytes(&runtime));
}

/// What a decision is about.
#[derive(Clone, Copy)]
enum Asked {
    /// One rule.
    One,
    /// Three rules that count by the same: one page.
    Three,
    /// Three rules that count by three things: three pages.
    Apart,
}

/// Who is measured.
struct Contenders {
    store: Arc<RedisStore>,
    plain: MultiplexedConnection,
    script: Arc<Script>,
}

impl Contenders {
    async fn new(server: &Server) -> Self {
        let address = Address::parse(&server.url()).expect("an address");
        let options =
            Options { deadline: Duration::from_secs(2), deny_cache: false, ..Options::at(address) };
        let store = RedisStore::start(&options);
        assert!(store.ready(Duration::from_secs(5)).await, "{:?}", store.lost());
        let client = redis::Client::open(server.url()).expect("a client");
        let plain = client.get_multiplexed_async_connection().await.expect("a connection");
        Self { store: Arc::new(store), plain, script: Arc::new(Script::new(PLAIN)) }
    }

    /// Decisions per second of the store.
    async fn store(&self, callers: u64, asked: Asked, turn: Duration) -> f64 {
        let store = Arc::clone(&self.store);
        race(callers, turn, move |draw| {
            let store = Arc::clone(&store);
            async move { decide(&store, draw, asked).await }
        })
        .await
    }

    /// Decisions per second of the plain way.
    async fn plain(&self, callers: u64, turn: Duration) -> f64 {
        let (plain, script) = (self.plain.clone(), Arc::clone(&self.script));
        race(callers, turn, move |draw| plainly(plain.clone(), Arc::clone(&script), draw)).await
    }
}

/// One decision of the plain way.
async fn plainly(mut plain: MultiplexedConnection, script: Arc<Script>, draw: u64) {
    let key = format!("plain:user:{draw}");
    let mut call = script.key(key);
    let told: Vec<i64> = call.arg(&PLAIN_LIMIT).invoke_async(&mut plain).await.expect("an answer");
    assert_eq!(told.len(), 3);
}

/// What each rule allows, made once as rules are.
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let quota = Quota::new(1_000, Micros::from_secs(3_600));
    Policy::new(Algorithm::TokenBucket, quota).expect("a policy")
});

/// What the keys of each rule have in common, made once as well.
static NAMESPACES: LazyLock<[Fingerprint; 3]> =
    LazyLock::new(|| RULES.map(|rule| Secret::UNSET.namespace(&[rule.as_bytes()])));

/// The counter of a rule.
fn key(rule: usize, parts: [&[u8]; 2]) -> Key<'static> {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    parts.iter().for_each(|part| hasher.part(part));
    let namespace = NAMESPACES[rule];
    Key { rule: RULES[rule], fingerprint: hasher.finish() ^ namespace, namespace }
}

async fn decide(store: &RedisStore, draw: u64, asked: Asked) {
    let user = draw.to_be_bytes();
    let by: [&[u8]; 3] = match asked {
        // Somebody else than `Three`: a page with one record.
        Asked::One => [b"client"; 3],
        Asked::Three => [b"user"; 3],
        Asked::Apart => [b"user", b"tenant", b"ip"],
    };
    let rules = if matches!(asked, Asked::One) { 1 } else { 3 };
    let charges = [0, 1, 2].map(|rule| Charge::plain(key(rule, [by[rule], &user]), &POLICY, 1));
    let mut readings = [Reading::default(); 3];
    let told = store.apply(Op::Charge, &charges[..rules], &mut readings[..rules]).await;
    told.expect("an answer");
}

/// So many callers, each asking again as soon as it was answered.
async fn race<F: Future<Output = ()> + Send>(
    callers: u64,
    turn: Duration,
    ask: impl Fn(u64) -> F + Send + Sync + 'static,
) -> f64 {
    let (ask, over) = (Arc::new(ask), Arc::new(AtomicBool::new(false)));
    let count = Arc::new(AtomicU64::new(0));
    let begun = now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (ask, over, count) = (Arc::clone(&ask), Arc::clone(&over), Arc::clone(&count));
        let mut draw = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ask((draw >> 33) % KEYS).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(turn).await;
    over.store(true, Ordering::Relaxed);
    while let Some(caller) = tasks.join_next().await {
        caller.expect("a caller who was always answered");
    }
    count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

fn throughput(runtime: &tokio::runtime::Runtime, server: &Server) -> String {
    let contenders = runtime.block_on(Contenders::new(server));
    let mut table = Table::new(&[
        "callers",
        "store, 1 rule",
        "3 rules, one owner",
        "3 rules, three owners",
        "plain way",
        "store / plain",
        "3 rules / 1, one owner",
        "3 rules / 1, three owners",
    ]);
    for callers in [1, 64, 256] {
        let race = |_| {
            let store = |asked| runtime.block_on(contenders.store(callers, asked, TURN));
            let (one, three, apart) = (store(Asked::One), store(Asked::Three), store(Asked::Apart));
            let plain = runtime.block_on(contenders.plain(callers, TURN));
            [one, three, apart, plain, one / plain, one / three, one / apart]
        };
        let races: Vec<[f64; 7]> = (0..RACES).map(race).collect();
        let middle =
            |which: usize| median(&races.iter().map(|race| race[which]).collect::<Vec<_>>());
        let mut row = vec![callers.to_string()];
        row.extend((0..4).map(|which| format!("{:.0}", middle(which))));
        row.extend((4..7).map(|which| format!("{:.2}", middle(which))));
        table.row(&row);
    }
    let mut ceiling = Table::new(&["redis-benchmark, 64 connections", "-P 1", "-P 16"]);
    let sha = server.command(&["SCRIPT", "LOAD", PLAIN]).text();
    let [rate, burst, cost] = PLAIN_LIMIT;
    let evalsha = ["EVALSHA", &sha, "1", "plain:user:__rand_int__", rate, burst, cost];
    for (name, words) in [("EVALSHA of the plain script", &evalsha[..]), ("PING", &["PING"][..])] {
        let mut row = vec![name.to_owned()];
        row.extend(["1", "16"].map(|depth| {
            let mut turns = Vec::new();
            for _ in 0..3 {
                turns.push(redis_benchmark(server.port(), depth, words));
            }
            format!("{:.0}", median(&turns))
        }));
        ceiling.row(&row);
    }
    format!("### Decisions per second\n\n{table}\n{ceiling}")
}

fn redis_benchmark(port: u16, depth: &str, words: &[&str]) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-c", "64", "-n", "200000", "-r", "100000", "-P", depth])
        .args(["-q", "--csv"])
        .args(words)
        .output()
        .expect("redis-benchmark");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().last().and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok());
    rate.unwrap_or_else(|| panic!("redis-benchmark says {text}"))
}

/// What the store adds to a round trip at a steady rate.
fn overhead(runtime: &tokio::runtime::Runtime, server: &Server) -> String {
    const RATE: u64 = 30_000;
    const SECONDS: u64 = 1;
    let contenders = runtime.block_on(Contenders::new(server));
    let mut table = latencies("at 30 000/s, microseconds");
    let mut rows = [const { Vec::new() }; 3];
    for _ in 0..RACES {
        let store = Arc::clone(&contenders.store);
        rows[0].push(paced(runtime, RATE, SECONDS, move |draw| {
            let store = Arc::clone(&store);
            async move { decide(&store, draw, Asked::One).await }
        }));
        let (plain, script) = (contenders.plain.clone(), Arc::clone(&contenders.script));
        rows[1].push(paced(runtime, RATE, SECONDS, move |draw| {
            plainly(plain.clone(), Arc::clone(&script), draw)
        }));
        let plain = contenders.plain.clone();
        rows[2].push(paced(runtime, RATE, SECONDS, move |_| {
            let mut plain = plain.clone();
            async move {
                let _: String =
                    redis::cmd("PING").query_async(&mut plain).await.expect("an answer");
            }
        }));
    }
    let names = ["store, 1 rule", "plain way", "PING, same client"];
    for (name, rounds) in names.iter().zip(&rows) {
        row(&mut table, name, rounds);
    }
    let added = |share: usize| {
        let rounds = rows[0].iter().zip(&rows[1]);
        median(&rounds.map(|(store, plain)| store[share] - plain[share]).collect::<Vec<_>>())
    };
    format!(
        "### Latency\n\n{table}\nWithin a round the store's p50 is {:+.0} µs and its p99 {:+.0} µs from the plain way's.\n",
        added(0),
        added(1)
    )
}

/// How soon a decision is answered while the server is stopped: by then `on_fail` must have decided.
fn gone(runtime: &tokio::runtime::Runtime) -> String {
    const RATE: u64 = 5_000;
    const SECONDS: u64 = 2;
    let server = Server::start();
    let document = "rules:\n  - id: per-user\n    key_by: user_id\n    limit: { requests: 1000, window: 1h }\n";
    let document = Document::parse("rules.yaml", document).expect("a document");
    let rules = RuleSet::compile(&document, Secret::UNSET).expect("rules");
    let address = Address::parse(&server.url()).expect("an address");
    let store = runtime.block_on(async { RedisStore::start(&Options::at(address)) });
    assert!(runtime.block_on(store.ready(Duration::from_secs(5))), "{:?}", store.lost());
    let limiter = Arc::new(Limiter::new(store, rules));
    let answers = || limiter.store().lost().is_none();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        eventually("the store answers", answers);
        server.process().pause();
        rounds.push(paced(runtime, RATE, SECONDS, |draw| {
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
    let mut table = latencies("at 5 000/s, microseconds");
    let name = format!("store stopped, deadline {DEFAULT_DEADLINE:?}");
    let told = row(&mut table, &name, &rounds);
    let over = told[2] - DEFAULT_DEADLINE.as_secs_f64() * 1e6;
    format!(
        "### While the store is gone\n\n{table}\nThe p99.9 is {over:+.0} µs from the deadline.\n"
    )
}

fn latencies(what: &str) -> Table {
    Table::new(&[&[what], &SHARES[..]].concat())
}

/// A row of latencies, the medians of some rounds, which are returned.
fn row(table: &mut Table, name: &str, rounds: &[[f64; SHARES.len()]]) -> [f64; SHARES.len()] {
    let column = |i| median(&rounds.iter().map(|round| round[i]).collect::<Vec<_>>());
    let told = std::array::from_fn(column);
    let cells = told.map(|each: f64| format!("{each:.0}"));
    table.row(&[vec![name.to_owned()], cells.to_vec()].concat());
    told
}

/// Starts requests at a steady rate, whether or not earlier ones were answered; the latencies. The one
/// who paces has a thread of its own and mostly sleeps, so that the worker is free for the answers.
fn paced<F: Future<Output = ()> + Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    rate: u64,
    seconds: u64,
    ask: impl Fn(u64) -> F,
) -> [f64; SHARES.len()] {
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let begun = now();
    let mut due = 0;
    while due < rate * seconds {
        let owed = u64::try_from(begun.elapsed().as_micros()).unwrap_or(0) * rate / 1_000_000;
        while due < owed {
            let heard = heard.clone();
            let answer = ask(due.wrapping_mul(2_654_435_761) % KEYS);
            let asked = now();
            runtime.spawn(async move {
                answer.await;
                _ = heard.send(asked.elapsed().as_secs_f64() * 1e6);
            });
            due += 1;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    drop(heard);
    let mut all = Vec::new();
    while let Some(latency) = told.blocking_recv() {
        all.push(latency);
    }
    // Without those that were not answered the rest would look well.
    assert_eq!(all.len() as u64, due, "not all were answered: the machine is too busy");
    all.sort_by(f64::total_cmp);
    let at = |share: usize| all[(all.len() - 1) * share / 1_000];
    [at(500), at(990), at(999), at(1_000)]
}

/// Bytes a key, by algorithm: the growth of `used_memory` over many keys.
fn bytes(runtime: &tokio::runtime::Runtime) -> String {
    const COUNT: u64 = 20_000;
    let mut table = Table::new(&["algorithm", "bytes an owner", "MEMORY USAGE of one"]);
    let used = |server: &Server| {
        let info = server.command(&["INFO", "memory"]).text();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|digits| digits.trim().parse::<f64>().ok()).expect("used_memory")
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
        let server = Server::start();
        let contenders = runtime.block_on(Contenders::new(&server));
        let quota = Quota::new(requests, Micros::from_secs(3_600));
        let policy = Policy::new(algorithm, quota).expect("a policy");
        let before = used(&server);
        runtime.block_on(async {
            for user in 0..count {
                let key = |rule| key(rule, [b"user", &user.to_be_bytes()]);
                let charges: Vec<_> =
                    (0..rules).map(|rule| Charge::plain(key(rule), &policy, 1)).collect();
                for _ in 0..times {
                    let mut readings = vec![Reading::default(); rules];
                    let told = contenders.store.apply(Op::Charge, &charges, &mut readings).await;
                    told.expect("an answer");
                }
            }
        });
        let grown = (used(&server) - before) / count as f64;
        let name = server.command(&["RANDOMKEY"]).text();
        let one = server.command(&["MEMORY", "USAGE", &name]).text();
        let what = match (rules, times) {
            (1, 2) => String::new(),
            (1, entries) => format!(", {entries} entries"),
            (rules, _) => format!(", {rules} rules"),
        };
        table.row(&[format!("{algorithm}{what}"), format!("{grown:.0}"), one]);
    }
    format!("### Memory\n\n{table}")
}
