//! In-process decisions per second and memory a key: our store, governor and a bare table side by
//! side, in rounds that interleave, because machines are noisy. `cargo xtask bench micro` runs it.

use std::process::Command;
use std::time::Duration;

use tidegate_bench::contender::{Contender, NAMES, ThreeRules, Tidegate, named};
use tidegate_bench::load::{Spread, Stream, key, run};
use tidegate_bench::report::{Table, machine, median, millions, resident_bytes};
use tidegate_bench::rules;
use tidegate_core::key::Secret;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(400);

/// A rate that refuses almost all of what one key sends here, and one that admits all of it.
const REFUSING: u32 = 100;
const ADMITTING: u32 = 1_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, name, count] = args.as_slice() {
        let count = count.parse().unwrap_or(0);
        return match what.as_str() {
            "memory" => print_memory(name, count),
            _ => count_decisions(name, count),
        };
    }
    println!("Machine: {}. {ROUNDS} interleaved rounds of {ROUND:?} each; medians.\n", machine());
    decisions();
    three_rules();
    rules::matching();
    memory();
}

fn decisions() {
    println!("### Decisions per second, in millions\n");
    let mut table = Table::new(&[
        "keys, spread, threads, most are",
        NAMES[0],
        NAMES[1],
        NAMES[2],
        NAMES[3],
        "tidegate / governor",
    ]);
    for (count, spread, rate) in [
        (1, Spread::Uniform, REFUSING),
        (1, Spread::Uniform, ADMITTING),
        (1_000, Spread::Uniform, REFUSING),
        (1_000, Spread::Uniform, ADMITTING),
        (1_000, Spread::Zipf, REFUSING),
        (1_000, Spread::Zipf, ADMITTING),
        (1_000_000, Spread::Uniform, REFUSING),
        (1_000_000, Spread::Zipf, REFUSING),
    ] {
        let all: Vec<_> = NAMES.iter().filter_map(|name| named(name, rate)).collect();
        for threads in [1, 2] {
            let rates = compare(&all, count, spread, threads);
            let refused = rate == REFUSING && count < 1_000_000;
            let verdict = if refused { "refused" } else { "admitted" };
            let mut row = vec![format!("{count}, {}, {threads}, {verdict}", spread.name())];
            row.extend(rates.iter().map(|rate| millions(*rate)));
            row.push(format!("{:.2}", rates[0] / rates[1]));
            table.row(&row);
        }
    }
    println!("{table}");
}

fn three_rules() {
    println!("### Three rules in one decision, all or none\n");
    let mut table =
        Table::new(&["keys, threads", "one rule, ns", "three rules, ns", "three / one"]);
    for count in [1_000, 1_000_000] {
        let tidegate = || Tidegate::new(REFUSING, Secret::random());
        let all: [Box<dyn Contender>; 2] = [Box::new(tidegate()), Box::new(ThreeRules(tidegate()))];
        for threads in [1, 2] {
            let rates = compare(&all, count, Spread::Zipf, threads);
            let nanos: Vec<f64> = rates.iter().map(|rate| 1e9 * threads as f64 / rate).collect();
            table.row(&[
                format!("{count}, {threads}"),
                format!("{:.0}", nanos[0]),
                format!("{:.0}", nanos[1]),
                format!("{:.2}", nanos[1] / nanos[0]),
            ]);
        }
    }
    println!("{table}");
}

/// Medians over rounds in which everyone has a turn.
fn compare(all: &[Box<dyn Contender>], count: usize, spread: Spread, threads: usize) -> Vec<f64> {
    let streams: Vec<_> =
        (0..threads).map(|seed| Stream::drawn(spread, count, 7 + seed as u64)).collect();
    for contender in all {
        Stream::of_all(count).each(|key| contender.decide(key));
    }
    let mut rates = vec![Vec::new(); all.len()];
    for _ in 0..ROUNDS {
        for (contender, rates) in all.iter().zip(&mut rates) {
            rates.push(run(&streams, ROUND, &|key| contender.decide(key)));
        }
    }
    rates.iter().map(|rates| median(rates)).collect()
}

/// Bytes of resident memory a key, each in a process of its own.
fn memory() {
    println!("### Resident memory a key, in bytes\n");
    // A secret takes no room that depends on the number of keys.
    let names = [NAMES[0], NAMES[1], NAMES[3]];
    let mut table = Table::new(&["keys", names[0], names[1], names[2]]);
    for count in [1_000_000, 10_000_000] {
        let mut row = vec![count.to_string()];
        row.extend(names.iter().map(|name| {
            let itself = std::env::current_exe().unwrap_or_default();
            let output = Command::new(itself).args(["memory", name, &count.to_string()]).output();
            output.map_or_else(
                |error| error.to_string(),
                |out| String::from_utf8_lossy(&out.stdout).trim().to_owned(),
            )
        }));
        table.row(&row);
    }
    println!("{table}");
}

/// So many decisions over sixteen keys and nothing else, to be counted by callgrind:
/// `valgrind --tool=callgrind target/release/micro count tidegate 100000`.
fn count_decisions(name: &str, count: usize) {
    let three = (name == "three")
        .then(|| ThreeRules(Tidegate::new(REFUSING, Secret::random())))
        .map(|three| Box::new(three) as Box<dyn Contender>);
    let Some(contender) = three.or_else(|| named(name, REFUSING)) else { return };
    let sixteen = Stream::of_all(16);
    (0..count / 16).for_each(|_| sixteen.each(|key| contender.decide(key)));
}

fn print_memory(name: &str, count: usize) {
    // One a day: nothing is equal to fresh while this runs.
    let Some(contender) = named(name, 1) else { return };
    let before = resident_bytes();
    for index in 0..count {
        contender.decide(&key(index));
    }
    println!("{:.1}", (resident_bytes() - before) as f64 / count as f64);
}
