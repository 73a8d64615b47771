//! Compares in-process decisions per second and memory per key of our memory store, governor and a
//! plain hash table. The contenders take turns in interleaved rounds, because machines are noisy.
//! `cargo xtask bench micro` runs it.

use std::process::Command;

use tidegate_bench::contender::{
    KeyLimiter, NAMES, ThreeRuleLimiter, TidegateLimiter, limiter_by_name,
};
use tidegate_bench::load::{KeyDistribution, KeyStream, key};
use tidegate_bench::report::{MarkdownTable, format_millions, machine_summary, resident_bytes};
use tidegate_bench::rounds::{ROUNDS, TURN, compare_rates};
use tidegate_bench::rules;
use tidegate_core::key::Secret;

/// Limit per second that refuses almost all requests of one key.
const REFUSING_RATE: u32 = 100;
/// Limit per second that admits all requests of one key.
const ADMITTING_RATE: u32 = 1_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, name, count] = args.as_slice() {
        let count = count.parse().unwrap_or(0);
        return match what.as_str() {
            "memory" => print_memory(name, count),
            _ => count_decisions(name, count),
        };
    }
    println!(
        "Machine: {}. {ROUNDS} interleaved rounds, turns of {TURN:?}; medians.\n",
        machine_summary()
    );
    if let [cell, name] = args.as_slice()
        && cell == "cell"
    {
        return bench_decisions(name);
    }
    // Print the tables named in the arguments, or all of them.
    let wanted = |table: &str| args.is_empty() || args.iter().any(|name| name == table);
    let tables: [(&str, fn()); 4] = [
        ("decisions", || bench_decisions("")),
        ("three", bench_three_rules),
        ("matching", rules::bench_matching),
        ("memory", bench_memory),
    ];
    tables.iter().filter(|(name, _)| wanted(name)).for_each(|(_, table)| table());
}

/// Measures the rows whose names begin with `prefix`.
fn bench_decisions(prefix: &str) {
    println!("### Decisions per second, in millions\n");
    let mut table = MarkdownTable::new(&[
        "keys, distribution, threads, mostly",
        NAMES[0],
        NAMES[1],
        NAMES[2],
        NAMES[3],
        "tidegate / governor",
    ]);
    for (count, spread, rate) in [
        (1, KeyDistribution::Uniform, REFUSING_RATE),
        (1, KeyDistribution::Uniform, ADMITTING_RATE),
        (1_000, KeyDistribution::Uniform, REFUSING_RATE),
        (1_000, KeyDistribution::Uniform, ADMITTING_RATE),
        (1_000, KeyDistribution::Zipf, REFUSING_RATE),
        (1_000, KeyDistribution::Zipf, ADMITTING_RATE),
        (1_000_000, KeyDistribution::Uniform, REFUSING_RATE),
        (1_000_000, KeyDistribution::Zipf, REFUSING_RATE),
    ] {
        let all: Vec<_> = NAMES.iter().filter_map(|name| limiter_by_name(name, rate)).collect();
        for threads in [1, 2] {
            let refused = rate == REFUSING_RATE && count < 1_000_000;
            let verdict = if refused { "refused" } else { "admitted" };
            let name = format!("{count}, {}, {threads}, {verdict}", spread.name());
            if !name.starts_with(prefix) {
                continue;
            }
            let rounds = compare_rates(&all, count, spread, threads);
            let mut row = vec![name];
            row.extend((0..all.len()).map(|contender| format_millions(rounds.rate(contender))));
            row.push(format!("{:.2}", rounds.ratio(0, 1)));
            table.push_row(&row);
        }
    }
    println!("{table}");
}

fn bench_three_rules() {
    println!("### Three rules in one decision, all or none\n");
    let mut table =
        MarkdownTable::new(&["keys, threads", "one rule, ns", "three rules, ns", "three / one"]);
    for count in [1_000, 1_000_000] {
        let tidegate = || TidegateLimiter::new(REFUSING_RATE, Secret::random());
        let all: [Box<dyn KeyLimiter>; 2] =
            [Box::new(tidegate()), Box::new(ThreeRuleLimiter(tidegate()))];
        for threads in [1, 2] {
            let rounds = compare_rates(&all, count, KeyDistribution::Zipf, threads);
            let nanos = |contender: usize| 1e9 * threads as f64 / rounds.rate(contender);
            table.push_row(&[
                format!("{count}, {threads}"),
                format!("{:.0}", nanos(0)),
                format!("{:.0}", nanos(1)),
                format!("{:.2}", rounds.ratio(0, 1)),
            ]);
        }
    }
    println!("{table}");
}

/// Measures resident memory per key, with a separate process for each contender.
fn bench_memory() {
    println!("### Resident memory per key, in bytes\n");
    // The secret does not change the memory per key, so the shared-secret variant is left out.
    let names = [NAMES[0], NAMES[1], NAMES[3]];
    let mut table = MarkdownTable::new(&["keys", names[0], names[1], names[2]]);
    for count in [1_000_000, 10_000_000] {
        let mut row = vec![count.to_string()];
        row.extend(names.iter().map(|name| {
            let executable = std::env::current_exe().unwrap_or_default();
            let output =
                Command::new(executable).args(["memory", name, &count.to_string()]).output();
            output.map_or_else(
                |error| error.to_string(),
                |out| String::from_utf8_lossy(&out.stdout).trim().to_owned(),
            )
        }));
        table.push_row(&row);
    }
    println!("{table}");
}

/// Makes `count` decisions over sixteen keys and nothing else, for callgrind:
/// `valgrind --tool=callgrind target/release/micro count tidegate 100000`.
fn count_decisions(name: &str, count: usize) {
    let three = (name == "three")
        .then(|| ThreeRuleLimiter(TidegateLimiter::new(REFUSING_RATE, Secret::random())))
        .map(|three| Box::new(three) as Box<dyn KeyLimiter>);
    let Some(contender) = three.or_else(|| limiter_by_name(name, REFUSING_RATE)) else { return };
    let keys = KeyStream::every_key(16);
    (0..count / 16).for_each(|_| keys.for_each_key(|key| contender.decide(key)));
}

fn print_memory(name: &str, count: usize) {
    // The lowest rate, because a full bucket may be evicted, and this one refills most slowly.
    let Some(contender) = limiter_by_name(name, 1) else { return };
    let before = resident_bytes();
    for index in 0..count {
        contender.decide(&key(index));
    }
    println!("{:.1}", (resident_bytes() - before) as f64 / count as f64);
}
