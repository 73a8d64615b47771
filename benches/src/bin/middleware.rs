//! Compares an axum service bare, under our layer, under tower_governor and under tower's own
//! limiter; and decisions of the library crate with those of governor. `cargo xtask bench
//! middleware` runs it.

use tidegate_bench::contender::{GovernorLimiter, KeyLimiter, KeyedContender, LibraryLimiter};
use tidegate_bench::fleet::verdict;
use tidegate_bench::load::KeyDistribution;
use tidegate_bench::middleware::{CONNECTIONS, MiddlewareBench, SECONDS};
use tidegate_bench::report::{MarkdownTable, format_millions, machine_summary};
use tidegate_bench::rounds::{self, compare_rates};

/// Rounds of HTTP turns.
const ROUNDS: usize = 25;

/// A limit that few requests exceed.
const PER_SECOND: u32 = 1_000_000;

fn main() {
    println!("{}\n", machine_summary());
    let mut goals = MarkdownTable::new(&["goal", "met?"]);
    bench_services(&mut goals);
    bench_decisions(&mut goals);
    println!("### Goals\n\n{goals}");
}

fn bench_services(goals: &mut MarkdownTable) {
    println!("### An axum service under a layer\n");
    println!(
        "{ROUNDS} interleaved rounds, turns of {SECONDS} s, {CONNECTIONS} connections; medians.\n"
    );
    let mut services = MiddlewareBench::start();
    services.run_rounds(ROUNDS);
    println!("{}", services.table());
    for (goal, kind, other, least) in [
        ("one rule ≥ tower_governor", "one-rule", "tower-governor", 1.0),
        ("one rule ≥ tower_governor, both with headers", "one-rule", "tower-governor-headers", 1.0),
        ("three rules ≥ 0.95 × no layer", "three-rules", "bare", 0.95),
    ] {
        push_goal(goals, goal, services.throughput(kind, other), least);
    }
}

fn bench_decisions(goals: &mut MarkdownTable) {
    println!("### `check_now` and governor, millions of decisions per second\n");
    println!("{} interleaved rounds, turns of {:?}; medians.\n", rounds::ROUNDS, rounds::TURN);
    let mut table = MarkdownTable::new(&[
        "keys, threads",
        "`KeyedLimiter`",
        "`Limiter`",
        "governor",
        "`KeyedLimiter` / governor",
        "`Limiter` / governor",
    ]);
    let all: [Box<dyn KeyLimiter>; 3] = [
        Box::new(KeyedContender::new(PER_SECOND)),
        Box::new(LibraryLimiter::new(PER_SECOND)),
        Box::new(GovernorLimiter::new(PER_SECOND)),
    ];
    for (keys, least) in [(1_000, 1.0), (1_000_000, 1.3)] {
        for threads in [1, 2] {
            let rates = compare_rates(&all, keys, KeyDistribution::Uniform, threads);
            table.push_row(&[
                format!("{keys}, {threads}"),
                format_millions(rates.rate(0)),
                format_millions(rates.rate(1)),
                format_millions(rates.rate(2)),
                format!("{:.2}", rates.ratio(0, 2)),
                format!("{:.2}", rates.ratio(1, 2)),
            ]);
            let goal =
                format!("`KeyedLimiter`, {keys} keys, {threads} threads: ≥ {least} × governor");
            push_goal(goals, &goal, rates.ratio(0, 2), least);
        }
    }
    println!("{table}");
}

fn push_goal(goals: &mut MarkdownTable, goal: &str, ratio: f64, least: f64) {
    goals.push_row(&[goal.to_owned(), format!("{} ({ratio:.2})", verdict(ratio >= least))]);
}
