//! Compares a rule with fixed shares, and with borrowing between regions, with a single region.
//! `cargo xtask bench regions` runs it. Arguments name the parts to run: `throughput`, `latency`,
//! `moving` and `hot`; without any, all of them run.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use tidegate_bench::regions::latency::LatencyBench;
use tidegate_bench::regions::nodes::LinkedStores;
use tidegate_bench::regions::throughput::LoadBench;
use tidegate_bench::regions::{hot_keys, moving_demand};
use tidegate_bench::report::{MarkdownTable, machine_summary};

/// The allocator of `tidegate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const THROUGHPUT_ROUNDS: usize = 5;
const LATENCY_ROUNDS: usize = 5;

/// The chart, which is written beside the tables.
const CHART: &str = "![Use of the limit over time](regions.svg)";

fn main() {
    let machine = machine_summary();
    let stores = LinkedStores::start();
    // As many threads as the server has on this machine.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("build the tokio runtime");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| args.is_empty() || args.iter().any(|name| name == part);
    println!("{machine}\n");
    let mut goals = MarkdownTable::new(&["goal", "met?"]);
    if wanted("throughput") {
        let mut bench = LoadBench::start(&runtime, &stores);
        bench.run_rounds(THROUGHPUT_ROUNDS);
        let table = bench.table();
        println!("### Decisions per second\n\n{THROUGHPUT_ROUNDS} interleaved rounds.\n\n{table}");
        bench.push_goals(&mut goals);
    }
    if wanted("latency") {
        let mut bench = LatencyBench::start(&runtime, &stores);
        bench.run_rounds(LATENCY_ROUNDS);
        let table = bench.table();
        println!("### Time of a decision\n\n{LATENCY_ROUNDS} interleaved rounds.\n\n{table}");
        bench.push_goals(&mut goals);
    }
    if wanted("moving") {
        let runs = moving_demand::run(&runtime, &stores);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/regions.svg");
        std::fs::write(path, moving_demand::chart(&runs).to_string()).expect("write the chart");
        let table = moving_demand::results_table(&runs);
        println!("### Use of the limit while the demand moves\n\n{CHART}\n\n{table}");
        moving_demand::push_goals(&runs, &mut goals);
    }
    if wanted("hot") {
        let runs = hot_keys::run(&runtime, &stores);
        println!("### Calls between regions\n\n{}", hot_keys::results_table(&runs));
        hot_keys::push_goals(&runs, &mut goals);
    }
    println!("### Goals\n\n{goals}");
}
