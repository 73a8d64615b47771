//! What the rule office costs: overrides in a decision, the violations log beside decisions, and how long a
//! change takes to every node. Contenders take turns in rounds.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_bench::paced::{clock, customer, facts_of, paced, share};
use tidegate_bench::report::{Table, machine, median};
use tidegate_bench::rules::{compile, ready};
use tidegate_control::{
    Book, By, Compiles, Desk, Files, Identities, Metrics, News, Office, Repository, Retention,
    Staff, Top, ViolationLog, entries, open,
};
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, Micros};
use tidegate_engine::{Limiter, Observer, Stopwatch};
use tidegate_memory::{FastClock, MemoryStore};
use tidegate_rules::problem::Problems;
use tidegate_rules::{Allowance, Declarations, Document, OverrideRecord, Records, RuleSet};
use tidegate_testkit::postgres::Database;
use tidegate_testkit::process::eventually;

const OVERRIDES: usize = 100_000;
/// One decision in so many is timed, as the server does.
const TIMED: u32 = 16;
const ROUNDS: usize = 15;
const DECISIONS: usize = 200_000;

const TURNS: usize = 60;
/// Lines of each rule a second in the process's log, as a server has it by default.
const LINES: u32 = 5;

const CHANGES: usize = 200;
const NODES: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, name, count] = args.as_slice()
        && what == "count"
    {
        return count_decisions(name, count.parse().unwrap_or(0));
    }
    println!("{}\n", machine());
    // One table by its name, or all of them.
    let wanted = |table: &str| args.is_empty() || args.iter().any(|name| name == table);
    if wanted("overrides") {
        println!("{}", overrides());
    }
    if wanted("heard") {
        println!("{}", heard());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if wanted("violations") {
        println!("{}", violations(&runtime));
    }
    if wanted("propagation") {
        println!("{}", propagation(&runtime));
    }
}

/// A decision without overrides, beside many of them, and of a key that has one.
fn overrides() -> String {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1000000/s }]";
    let none = Limiter::new(MemoryStore::new(), compile(source));
    let set = compile(source);
    let overrides = (0..OVERRIDES).map(|at| {
        let key = set.override_key("r", &facts_of(&customer(at))).expect("a key");
        let allows = Allowance::Requests { requests: 1_000_000 + at as u64 % 100, burst: None };
        OverrideRecord { rule: "r".to_owned(), key, allows }
    });
    let records = Records { overrides: overrides.collect(), ..Records::default() };
    let many = Limiter::new(MemoryStore::new(), set.with_records(&records).expect("overrides"));
    let with: Vec<String> = (0..1_000).map(|at| customer(at * 97)).collect();
    let without: Vec<String> = (0..1_000).map(|at| customer(OVERRIDES + at)).collect();
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (times, (limiter, keys)) in
            times.iter_mut().zip([(&none, &with), (&many, &without), (&many, &with)])
        {
            times.push(nanos(limiter, keys));
        }
    }
    let mut table = Table::new(&["overrides", "the key", "ns a decision", "added"]);
    let rows = [("none", "-"), ("100 000", "has none"), ("100 000", "has one")];
    for ((count, key), own) in rows.into_iter().zip(&times) {
        let added: Vec<f64> = own.iter().zip(&times[0]).map(|(own, none)| own - none).collect();
        table.row(&[
            count.to_owned(),
            key.to_owned(),
            format!("{:.0}", median(own)),
            format!("{:+.0}", median(&added)),
        ]);
    }
    format!("### Overrides, looked up in a decision on memory\n\n{table}")
}

/// A limiter whose decisions nobody hears of.
fn alone() -> Limiter<MemoryStore> {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1000000/s }]";
    Limiter::new(MemoryStore::new(), compile(source))
}

/// One that refuses all but the first.
fn refusing() -> Limiter<MemoryStore> {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1/h }]";
    Limiter::new(MemoryStore::new(), compile(source))
}

/// The log as a server keeps it, also with a few lines of each rule in the process's log, which go nowhere here.
fn log() -> Arc<ViolationLog> {
    let identities = Identities { secret: Secret::UNSET, plain: false };
    Arc::new(ViolationLog::new(identities, clock()).telling(LINES, |_| ()))
}

/// One whose decisions are counted and looked at by the log.
fn observed() -> Limiter<MemoryStore> {
    let identities = Identities { secret: Secret::UNSET, plain: false };
    counted(alone().observed_by(Arc::new(ViolationLog::new(identities, clock()))))
}

/// The same, whose decisions are counted as a server counts them.
fn counted(limiter: Limiter<MemoryStore>) -> Limiter<MemoryStore> {
    let identities = Identities { secret: Secret::UNSET, plain: false };
    let metrics = Arc::new(metrics());
    limiter
        .observed_by(Arc::clone(&metrics) as Arc<dyn Observer>)
        .observed_by(Arc::new(Top::new(identities, clock())))
        .timed_by(metrics as Arc<dyn Stopwatch>)
}

/// So many decisions and nothing else, to be counted by callgrind:
/// `valgrind --tool=callgrind target/release/office count heard 100000`. Of `logged` no more than wait in the log.
fn count_decisions(name: &str, count: usize) {
    let limiter = match name {
        "heard" => observed(),
        "refused" => refusing(),
        "logged" => refusing().observed_by(log()),
        _ => alone(),
    };
    let keys: Vec<String> = (0..1_000).map(customer).collect();
    keys.iter().cycle().take(count).for_each(|key| {
        black_box(ready(limiter.decide(&facts_of(key), 1)));
    });
}

/// A decision of either.
fn heard() -> String {
    let (alone, heard) = (alone(), observed());
    let keys: Vec<String> = (0..1_000).map(customer).collect();
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (times, limiter) in times.iter_mut().zip([&alone, &heard]) {
            times.push(nanos(limiter, &keys));
        }
    }
    let ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(a, h)| a / h).collect();
    let mut table = Table::new(&["", "ns a decision", "rate, of the first's"]);
    let row = |name: &str, own: &[f64], ratio: f64| {
        [name.to_owned(), format!("{:.0}", median(own)), format!("{ratio:.2}")]
    };
    table.row(&row("nobody hears of it", &times[0], 1.0));
    table.row(&row("metrics, top keys and the violations log", &times[1], median(&ratios)));
    format!("### Decisions that are counted\n\n{table}")
}

fn nanos(limiter: &Limiter<MemoryStore>, keys: &[String]) -> f64 {
    let start = Instant::now();
    for at in 0..DECISIONS {
        let facts = facts_of(&keys[at % keys.len()]);
        black_box(ready(limiter.decide(&facts, 1)));
    }
    start.elapsed().as_nanos() as f64 / DECISIONS as f64
}

/// Decisions at a steady rate, all refused, with and without the log.
fn violations(runtime: &tokio::runtime::Runtime) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("rules.db").display());
    let repository = runtime.block_on(open(&url)).expect("a database");
    let log = log();
    let kept = (Arc::clone(&log), Arc::clone(&repository));
    let retention = Retention { age: Micros::from_secs(86_400), rows: u64::MAX >> 1 };
    let keeping = runtime.spawn(async move { kept.0.keep(&*kept.1, retention).await });
    let plain = refusing();
    let logged = || refusing().observed_by(Arc::clone(&log) as Arc<dyn Observer>);
    let (served, served_logged) = (counted(refusing()), counted(logged()));
    let logged = logged();
    let turns = [
        ("a server's, without the log", &served, None),
        ("a server's, with the log, to SQLite", &served_logged, None),
        ("nothing else, without the log", &plain, None),
        ("nothing else, without the log, beside one that has it", &plain, Some(&logged)),
        ("nothing else, with the log, to SQLite", &logged, None),
    ];
    let mut shares = [const { Vec::<[f64; 3]>::new() }; 5];
    for _ in 0..TURNS {
        for (shares, (_, limiter, beside)) in shares.iter_mut().zip(turns) {
            shares.push(paced(limiter, beside));
            // What is still to be written is no burden of the next.
            eventually("all is written", || log.tally().waiting == 0);
        }
    }
    // It writes what is left, and ends.
    log.stop();
    runtime.block_on(keeping).expect("the log was kept");
    let tally = log.tally();
    let mut table = Table::new(&["30 000 refusals/s, microseconds", "p50", "p99", "p99.9"]);
    for ((name, ..), shares) in turns.into_iter().zip(&shares) {
        let column = |at: usize| median(&shares.iter().map(|share| share[at]).collect::<Vec<_>>());
        let cells = (0..3).map(|at| format!("{:.2}", column(at)));
        table.row(&[name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let ratio = |with: usize, without: usize| {
        let both = shares[with].iter().zip(&shares[without]);
        median(&both.map(|(with, without)| with[1] / without[1]).collect::<Vec<_>>())
    };
    format!(
        "### Violations, written while decisions run\n\n{table}\nThe p99 with the log is {:.2} × that \
         without in a server, in the middle of {TURNS} rounds; where a decision is nothing else, {:.2} ×, and \
         {:.2} × without it, but beside the writer. Of {} violations {} were written and {} dropped.\n",
        ratio(1, 0),
        ratio(4, 2),
        ratio(3, 2),
        tally.heard,
        tally.written,
        tally.dropped
    )
}

/// As the server has them.
fn metrics() -> Metrics {
    let clock = FastClock::new();
    Metrics::new(TIMED, Arc::new(move || clock.now()))
}

struct Compiler;

impl Compiles for Compiler {
    fn compile(&self, document: &str, _: Files) -> Result<RuleSet, Problems> {
        RuleSet::compile(&Document::parse("bench", document)?, Secret::UNSET)
    }
}

/// A node that only notes when a version came into force.
struct Node {
    version: AtomicU64,
    at: Mutex<Instant>,
}

impl Desk for Node {
    fn install(&self, rules: RuleSet) -> futures_util::future::BoxFuture<'_, Result<(), String>> {
        *self.at.lock().expect("nobody panics") = Instant::now();
        self.version.store(rules.version(), Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }

    fn hear(&self, _: &News<'_>) {}
}

/// From a change at one node until it is in force on all.
fn propagation(runtime: &tokio::runtime::Runtime) -> String {
    let database = Database::fresh();
    let mut took = runtime.block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let node =
                Arc::new(Node { version: AtomicU64::new(0), at: Mutex::new(Instant::now()) });
            let repository: Arc<dyn Repository> = open(&database.url()).await.expect("a database");
            let staff = Staff {
                repository,
                compiler: Arc::new(Compiler),
                desk: Arc::clone(&node) as Arc<dyn Desk>,
                clock: clock(),
                secret: Secret::UNSET,
                identities: Identities { secret: Secret::UNSET, plain: false },
                node: format!("node {}", nodes.len()),
                copy: None,
            };
            let office = Arc::new(Office::new(staff, Book::default()));
            let kept = Arc::clone(&office);
            tokio::spawn(async move { kept.keep().await });
            nodes.push((office, node));
        }
        let by = By { author: "bench".to_owned(), reason: "a change".to_owned() };
        let mut took = Vec::new();
        for at in 0..CHANGES {
            let source = format!("rules: [{{ id: r, key_by: ip, limit: {}/s }}]", at + 1);
            let rules = Compiler.compile(&source, Files::None).expect("rules");
            let edit =
                entries("bench", &source, &[], &Declarations::default(), &rules, Secret::UNSET)
                    .expect("entries");
            let start = Instant::now();
            let done = nodes[at % NODES].0.edit(&by, |_| Ok(edit.clone())).await.expect("a change");
            for (_, node) in &nodes {
                while node.version.load(Ordering::SeqCst) < done.version {
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                let at = *node.at.lock().expect("nobody panics");
                took.push(at.saturating_duration_since(start).as_secs_f64() * 1_000.0);
            }
        }
        took
    });
    took.sort_by(f64::total_cmp);
    let mut table = Table::new(&["milliseconds", "p50", "p99", "most"]);
    let cells = [500, 990, 1_000].map(|permille| format!("{:.1}", share(&took, permille)));
    let row = ["a change at one of three nodes, in force on each".to_owned()];
    table.row(&row.into_iter().chain(cells).collect::<Vec<_>>());
    format!("### A change, on its way to every node (PostgreSQL)\n\n{table}")
}
