//! Measures what live dashboards cost decisions: the latency of refusals at a steady rate with no
//! listener on the live stream, with one, and with the maximum number. The three cases take turns
//! in interleaved rounds. `cargo xtask bench dashboard` runs it.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;

use http_body_util::BodyExt as _;
use tidegate_bench::paced::{measure_paced, wall_clock};
use tidegate_bench::report::{MarkdownTable, machine_summary, median};
use tidegate_bench::rules::compile;
use tidegate_core::key::Secret;
use tidegate_limiter::{DecisionObserver, Limiter};
use tidegate_memory::MemoryStore;
use tidegate_telemetry::live_feed::{LiveBroadcaster, LiveSource, MAX_LISTENERS};
use tidegate_telemetry::{DecisionMetrics, IdentityPolicy, TopKeys, ViolationLog};
use tidegate_web::ProcessStatus;

const TURNS: usize = 36;

/// One decision in this many is timed, as in the server.
const TIMED_EVERY: u32 = 16;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("build the tokio runtime");
    let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
    let log = Arc::new(ViolationLog::new(identities, wall_clock()));
    let metrics = Arc::new(DecisionMetrics::new(TIMED_EVERY, wall_clock()));
    // Every rule admits only the first request of a client; half of them are in shadow mode. Each
    // event of the live stream reports every rule.
    let rules = (0..20).map(|at| {
        let mode = if at % 2 == 0 { "enforce" } else { "shadow" };
        format!("{{ id: r{at}, key_by: api_key, limit: 1/h, mode: {mode} }}")
    });
    let source = format!("rules: [{}]", rules.collect::<Vec<_>>().join(", "));
    let limiter = Limiter::new(MemoryStore::new(), compile(&source))
        .with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>)
        .with_observer(Arc::clone(&metrics) as Arc<dyn DecisionObserver>)
        .with_observer(
            Arc::new(TopKeys::new(identities, wall_clock())) as Arc<dyn DecisionObserver>
        );
    let sources = vec![metrics as Arc<dyn LiveSource>, Arc::clone(&log) as Arc<dyn LiveSource>];
    let live = Arc::new(log.live_broadcaster(sources, Arc::new(ProcessStatus::new())));
    let mut latencies = [const { Vec::<[f64; 3]>::new() }; 3];
    for _ in 0..TURNS {
        for (latencies, listeners) in latencies.iter_mut().zip([0, 1, MAX_LISTENERS]) {
            let listening = runtime.block_on(async { spawn_listeners(&live, listeners) });
            latencies.push(measure_paced(&limiter, None));
            // A listener frees its slot only after its task has ended.
            for listener in listening {
                listener.abort();
                let _ = runtime.block_on(listener);
            }
        }
    }
    println!("{}\n\n{}", machine_summary(), latency_table(&latencies));
}

/// Starts the given number of listeners, which read every event.
fn spawn_listeners(
    live: &Arc<LiveBroadcaster>,
    listeners: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    let listen = |_| {
        let mut feed = live.subscribe().expect("a free listener slot");
        tokio::spawn(async move { while feed.frame().await.is_some() {} })
    };
    (0..listeners).map(listen).collect()
}

fn latency_table(latencies: &[Vec<[f64; 3]>; 3]) -> String {
    let mut table = MarkdownTable::new(&[
        "30 000 refusals/s by 20 rules, microseconds",
        "p50",
        "p99",
        "p99.9",
        "p99, relative to the first",
    ]);
    let names = ["no dashboard", "one dashboard", "maximum number of dashboards"];
    for (name, own) in names.into_iter().zip(latencies) {
        let column = |at: usize| median(&own.iter().map(|turn| turn[at]).collect::<Vec<_>>());
        let ratios: Vec<f64> =
            own.iter().zip(&latencies[0]).map(|(own, none)| own[1] / none[1]).collect();
        let cells = (0..3).map(|at| format!("{:.2}", column(at)));
        let row = [name.to_owned()].into_iter().chain(cells);
        table.push_row(&row.chain([format!("{:.2}", median(&ratios))]).collect::<Vec<_>>());
    }
    format!("### Decisions with live dashboards\n\n{table}")
}
