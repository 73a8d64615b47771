//! Control plane benchmark: what overrides, observers and the violation log cost a decision, and
//! how long a rule change takes to reach every node. Contenders take turns in interleaved rounds.
//! `cargo xtask bench rulestore` runs it.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_bench::paced::{client_facts, client_name, measure_paced, percentile, wall_clock};
use tidegate_bench::report::{MarkdownTable, machine_summary, median};
use tidegate_bench::rules::{compile, poll_ready};
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, Micros};
use tidegate_limiter::{DecisionObserver, DecisionTimer, Limiter};
use tidegate_memory::{FastClock, MemoryStore};
use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::{
    Document, ExternalRecords, FactDeclarations, OverrideLimit, OverrideRecord, RuleSet,
};
use tidegate_rulestore::{
    ChangeAuthor, FileAccess, Repository, RuleCompiler, RuleConfig, RuleManager, RuleManagerDeps,
    RuleSink, SyncEvent, document_entries, open,
};
use tidegate_telemetry::{DecisionMetrics, IdentityPolicy, RetentionPolicy, TopKeys, ViolationLog};
use tidegate_testkit::postgres::TestDatabase;
use tidegate_testkit::process::eventually;
use tidegate_web::LogPaths;

const OVERRIDES: usize = 100_000;
/// One decision in this many is timed, as in the server.
const TIMED_EVERY: u32 = 16;
const ROUNDS: usize = 15;
const DECISIONS: usize = 200_000;

const TURNS: usize = 60;
/// Log lines per rule and second: the server's default.
const LOG_LINES_PER_RULE: u32 = 5;

const CHANGES: usize = 200;
const NODES: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, name, count] = args.as_slice()
        && what == "count"
    {
        return count_decisions(name, count.parse().unwrap_or(0));
    }
    println!("{}\n", machine_summary());
    // Print the tables named in the arguments, or all of them.
    let wanted = |table: &str| args.is_empty() || args.iter().any(|name| name == table);
    if wanted("overrides") {
        println!("{}", bench_overrides());
    }
    if wanted("observed") {
        println!("{}", bench_observers());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("build the tokio runtime");
    if wanted("violations") {
        println!("{}", bench_violation_log(&runtime));
    }
    if wanted("propagation") {
        println!("{}", bench_propagation(&runtime));
    }
}

/// Decisions without overrides, with many of them, and for a key that has one.
fn bench_overrides() -> String {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1000000/s }]";
    let none = Limiter::new(MemoryStore::new(), compile(source));
    let set = compile(source);
    let overrides = (0..OVERRIDES).map(|at| {
        let key = set.override_key("r", &client_facts(&client_name(at))).expect("an override key");
        let limit = OverrideLimit::Requests { requests: 1_000_000 + at as u64 % 100, burst: None };
        OverrideRecord { rule: "r".to_owned(), key, limit }
    });
    let records = ExternalRecords { overrides: overrides.collect(), ..ExternalRecords::default() };
    let many = Limiter::new(
        MemoryStore::new(),
        set.with_records(&records).expect("compile the overrides"),
    );
    let with: Vec<String> = (0..1_000).map(|at| client_name(at * 97)).collect();
    let without: Vec<String> = (0..1_000).map(|at| client_name(OVERRIDES + at)).collect();
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (times, (limiter, keys)) in
            times.iter_mut().zip([(&none, &with), (&many, &without), (&many, &with)])
        {
            times.push(nanos_per_decision(limiter, keys));
        }
    }
    let mut table =
        MarkdownTable::new(&["overrides", "key has an override", "ns per decision", "added"]);
    let rows = [("none", "-"), ("100 000", "no"), ("100 000", "yes")];
    for ((count, key), own) in rows.into_iter().zip(&times) {
        let added: Vec<f64> = own.iter().zip(&times[0]).map(|(own, none)| own - none).collect();
        table.push_row(&[
            count.to_owned(),
            key.to_owned(),
            format!("{:.0}", median(own)),
            format!("{:+.0}", median(&added)),
        ]);
    }
    format!("### Override lookup in a decision, memory store\n\n{table}")
}

/// A limiter without observers.
fn unobserved_limiter() -> Limiter<MemoryStore> {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1000000/s }]";
    Limiter::new(MemoryStore::new(), compile(source))
}

/// A limiter that refuses all requests but the first.
fn refusing_limiter() -> Limiter<MemoryStore> {
    let source = "rules: [{ id: r, key_by: api_key, limit: 1/h }]";
    Limiter::new(MemoryStore::new(), compile(source))
}

/// A violation log as in the server, with sampled log lines; these are discarded here.
fn violation_log() -> Arc<ViolationLog> {
    let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
    Arc::new(ViolationLog::new(identities, wall_clock()).with_log_lines(
        LOG_LINES_PER_RULE,
        LogPaths::Patterns,
        |_| (),
    ))
}

/// A limiter observed by metrics, top keys and the violation log.
fn observed_limiter() -> Limiter<MemoryStore> {
    let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
    with_metrics(
        unobserved_limiter().with_observer(Arc::new(ViolationLog::new(identities, wall_clock()))),
    )
}

/// Adds the metrics, top keys and timer of the server to a limiter.
fn with_metrics(limiter: Limiter<MemoryStore>) -> Limiter<MemoryStore> {
    let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
    let metrics = Arc::new(decision_metrics());
    limiter
        .with_observer(Arc::clone(&metrics) as Arc<dyn DecisionObserver>)
        .with_observer(Arc::new(TopKeys::new(identities, wall_clock())))
        .with_timer(metrics as Arc<dyn DecisionTimer>)
}

/// Makes `count` decisions and nothing else, for callgrind:
/// `valgrind --tool=callgrind target/release/rulestore count observed 100000`. With `logged`, no
/// writer drains the queue of the violation log, so `count` must not exceed its capacity.
fn count_decisions(name: &str, count: usize) {
    let limiter = match name {
        "observed" => observed_limiter(),
        "refused" => refusing_limiter(),
        "logged" => refusing_limiter().with_observer(violation_log()),
        _ => unobserved_limiter(),
    };
    let keys: Vec<String> = (0..1_000).map(client_name).collect();
    keys.iter().cycle().take(count).for_each(|key| {
        black_box(poll_ready(limiter.decide(&client_facts(key), 1)));
    });
}

/// Decisions with and without observers.
fn bench_observers() -> String {
    let (unobserved, observed) = (unobserved_limiter(), observed_limiter());
    let keys: Vec<String> = (0..1_000).map(client_name).collect();
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (times, limiter) in times.iter_mut().zip([&unobserved, &observed]) {
            times.push(nanos_per_decision(limiter, &keys));
        }
    }
    let ratios: Vec<f64> = times[0]
        .iter()
        .zip(&times[1])
        .map(|(unobserved, observed)| unobserved / observed)
        .collect();
    let mut table = MarkdownTable::new(&["", "ns per decision", "rate, relative to the first"]);
    let row = |name: &str, own: &[f64], ratio: f64| {
        [name.to_owned(), format!("{:.0}", median(own)), format!("{ratio:.2}")]
    };
    table.push_row(&row("no observers", &times[0], 1.0));
    table.push_row(&row("metrics, top keys and violation log", &times[1], median(&ratios)));
    format!("### Observed decisions\n\n{table}")
}

fn nanos_per_decision(limiter: &Limiter<MemoryStore>, keys: &[String]) -> f64 {
    let start = Instant::now();
    for at in 0..DECISIONS {
        let facts = client_facts(&keys[at % keys.len()]);
        black_box(poll_ready(limiter.decide(&facts, 1)));
    }
    start.elapsed().as_nanos() as f64 / DECISIONS as f64
}

/// Decisions at a steady rate, all refused, with and without the violation log.
fn bench_violation_log(runtime: &tokio::runtime::Runtime) -> String {
    let folder = tempfile::tempdir().expect("create a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("rules.db").display());
    let repository = runtime.block_on(open(&url)).expect("open the database");
    let log = violation_log();
    let (writer_log, writer_repository) = (Arc::clone(&log), Arc::clone(&repository));
    let retention = RetentionPolicy { age: Micros::from_secs(86_400), rows: u64::MAX >> 1 };
    let writer = runtime.spawn(async move { writer_log.run(&*writer_repository, retention).await });
    let plain = refusing_limiter();
    let logged = || refusing_limiter().with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>);
    let (served, served_logged) = (with_metrics(refusing_limiter()), with_metrics(logged()));
    let logged = logged();
    let turns = [
        ("as in a server, no violation log", &served, None),
        ("as in a server, violation log in SQLite", &served_logged, None),
        ("limiter alone, no violation log", &plain, None),
        ("limiter alone, no violation log, while another limiter logs", &plain, Some(&logged)),
        ("limiter alone, violation log in SQLite", &logged, None),
    ];
    let mut latencies = [const { Vec::<[f64; 3]>::new() }; 5];
    for _ in 0..TURNS {
        for (latencies, (_, limiter, untimed)) in latencies.iter_mut().zip(turns) {
            latencies.push(measure_paced(limiter, untimed));
            // Drain the queue, so that its writes do not burden the next turn.
            eventually("all violations are written", || log.counts().waiting == 0);
        }
    }
    // Wait until the writer has flushed the queue and ended.
    log.stop();
    runtime.block_on(writer).expect("the violation writer did not panic");
    let counts = log.counts();
    let mut table = MarkdownTable::new(&["30 000 refusals/s, microseconds", "p50", "p99", "p99.9"]);
    for ((name, ..), latencies) in turns.into_iter().zip(&latencies) {
        let column = |at: usize| median(&latencies.iter().map(|turn| turn[at]).collect::<Vec<_>>());
        let cells = (0..3).map(|at| format!("{:.2}", column(at)));
        table.push_row(&[name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let ratio = |with: usize, without: usize| {
        let both = latencies[with].iter().zip(&latencies[without]);
        median(&both.map(|(with, without)| with[1] / without[1]).collect::<Vec<_>>())
    };
    format!(
        "### Violations written during decisions\n\n{table}\nMedian p99 ratio over {TURNS} rounds, \
         with the violation log versus without: {:.2} as in a server, {:.2} for the limiter alone, \
         {:.2} for the limiter alone while another limiter logs. Of {} violations, {} were written \
         and {} dropped.\n",
        ratio(1, 0),
        ratio(4, 2),
        ratio(3, 2),
        counts.received,
        counts.written,
        counts.dropped
    )
}

/// Decision metrics as in the server.
fn decision_metrics() -> DecisionMetrics {
    let clock = FastClock::new();
    DecisionMetrics::new(TIMED_EVERY, Arc::new(move || clock.now()))
}

struct BenchCompiler;

impl RuleCompiler for BenchCompiler {
    fn compile(&self, document: &str, _: FileAccess) -> Result<RuleSet, DocumentError> {
        RuleSet::compile(&Document::parse("bench", document)?, Secret::UNSET)
    }
}

/// A node that only records when a version was installed.
struct BenchNode {
    version: AtomicU64,
    installed_at: Mutex<Instant>,
}

impl RuleSink for BenchNode {
    fn install(&self, rules: RuleSet) -> futures_util::future::BoxFuture<'_, Result<(), String>> {
        *self.installed_at.lock().expect("the lock is not poisoned") = Instant::now();
        self.version.store(rules.version(), Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }

    fn on_event(&self, _: &SyncEvent<'_>) {}
}

/// Measures the time from a change at one node until it is in force on each node.
fn bench_propagation(runtime: &tokio::runtime::Runtime) -> String {
    let database = TestDatabase::create();
    let mut latencies = runtime.block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let node = Arc::new(BenchNode {
                version: AtomicU64::new(0),
                installed_at: Mutex::new(Instant::now()),
            });
            let repository: Arc<dyn Repository> =
                open(&database.url()).await.expect("open the database");
            let deps = RuleManagerDeps {
                repository,
                compiler: Arc::new(BenchCompiler),
                sink: Arc::clone(&node) as Arc<dyn RuleSink>,
                clock: wall_clock(),
                secret: Secret::UNSET,
                identities: IdentityPolicy { secret: Secret::UNSET, plain: false },
                node: format!("node {}", nodes.len()),
                local_cache: None,
            };
            let manager = Arc::new(RuleManager::new(deps, RuleConfig::default()));
            let running = Arc::clone(&manager);
            tokio::spawn(async move { running.run().await });
            nodes.push((manager, node));
        }
        let author = ChangeAuthor { author: "bench".to_owned(), reason: "a change".to_owned() };
        let mut latencies = Vec::new();
        for at in 0..CHANGES {
            let source = format!("rules: [{{ id: r, key_by: ip, limit: {}/s }}]", at + 1);
            let rules =
                BenchCompiler.compile(&source, FileAccess::None).expect("compile the rules");
            let edit = document_entries(
                "bench",
                &source,
                &[],
                &FactDeclarations::default(),
                &rules,
                Secret::UNSET,
            )
            .expect("split the document into entries");
            let start = Instant::now();
            let done = nodes[at % NODES]
                .0
                .edit(&author, |_| Ok(edit.clone()))
                .await
                .expect("apply the edit");
            for (_, node) in &nodes {
                while node.version.load(Ordering::SeqCst) < done.version {
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                let at = *node.installed_at.lock().expect("the lock is not poisoned");
                latencies.push(at.saturating_duration_since(start).as_secs_f64() * 1_000.0);
            }
        }
        latencies
    });
    latencies.sort_by(f64::total_cmp);
    let mut table = MarkdownTable::new(&["milliseconds", "p50", "p99", "max"]);
    let cells =
        [500, 990, 1_000].map(|permille| format!("{:.1}", percentile(&latencies, permille)));
    let row = ["from an edit at one of three nodes until in force on each".to_owned()];
    table.push_row(&row.into_iter().chain(cells).collect::<Vec<_>>());
    format!("### Propagation of a change to every node (PostgreSQL)\n\n{table}")
}
