//! Compares exact, leased and asynchronous rules of nodes that share one Redis server, in
//! interleaved rounds. `cargo xtask bench fleet` runs it.
//!
//! For a profiler, `fleet hot leased 2` runs a few turns with one hot key on two nodes. Instead of
//! `hot`: `zipf` or `uniform`; instead of `leased`: `exact`, `async`, `leased-long` or
//! `async-long`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use tidegate_bench::fleet::http_cost::{self, HttpCostBench};
use tidegate_bench::fleet::skewed_demand;
use tidegate_bench::fleet::throughput::{self, FleetKeys, ThroughputBench};
use tidegate_bench::report::{MarkdownTable, machine_summary};
use tidegate_testkit::redis::RedisServer;

/// The allocator of `tidegate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
const HTTP_ROUNDS: usize = 11;

fn main() {
    let machine = machine_summary();
    let server = RedisServer::start();
    // As many threads as the server has on this machine.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("build the tokio runtime");
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [keys, mode, nodes] = &args[..] {
        let nodes = nodes.parse().expect("NODES is a number");
        return throughput::profile(&runtime, &server, keys, mode, nodes);
    }
    // Run the parts named in the arguments, or all of them.
    let wanted = |part: &str| args.is_empty() || args.iter().any(|name| name == part);
    println!("{machine}\n");
    let mut goals = MarkdownTable::new(&["goal", "met?"]);
    if wanted("throughput") {
        let mut bench = ThroughputBench::start(&runtime, &server, &FleetKeys::ALL);
        bench.run_rounds(ROUNDS);
        println!("### Decisions per second\n\n{ROUNDS} interleaved rounds.\n\n{}", bench.table());
        bench.push_goals(&mut goals);
    }
    if wanted("skewed") {
        let runs = skewed_demand::run(&runtime, &server);
        println!("### Eight nodes with skewed demand\n\n{}", skewed_demand::results_table(&runs));
        skewed_demand::push_goals(&runs, &mut goals);
    }
    if wanted("http") {
        let mut bench = HttpCostBench::start();
        bench.run_rounds(HTTP_ROUNDS);
        let method = http_cost::method(HTTP_ROUNDS);
        println!("### Cost of a decision through the HTTP API\n\n{method}.\n\n{}", bench.table());
        bench.push_goals(&mut goals);
    }
    println!("### Goals\n\n{goals}");
}
