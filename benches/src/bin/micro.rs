//! In-process decisions per second and memory a key: our store, governor and a bare table side by
//! side, in rounds that interleave, because machines are noisy. `cargo xtask bench micro` runs it.

use std::process::Command;
use std::time::Duration;

use tidegate_bench::contender::{Contender, NAMES, ThreeRules, Tidegate, named};
use tidegate_bench::load::{Spread, Stream, key, run};
use tidegate_bench::report::{Table, machine, median, millions, resident_bytes};
use tidegate_bench::rules;
use tidegate_core::key::Secret;

/// Many short turns: a neighbour that takes the processor for a second then spoils some rounds of
/// everybody, not one contender's whole figure.
const ROUNDS: usize = 25;
const TURN: Duration = Duration::from_millis(80);

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
    println!("Machine: {}. {ROUNDS} interleaved rounds, turns of {TURN:?}; medians.\n", machine());
    if let [cell, name] = args.as_slice()
        && cell == "cell"
    {
        return decisions(name);
    }
    // One table by its name, or all of them.
    let wanted = |table: &str| args.is_empty() || args.iter().any(|name| name == table);
    let tables: [(&str, fn()); 4] = [
        ("decisions", || decisions("")),
        ("three", three_rules),
        ("matching", rules::matching),
        ("memory", memory),
    ];
    tables.iter().filter(|(name, _)| wanted(name)).for_each(|(_, table)| table());
}

/// The cells whose names begin so.
fn decisions(wanted: &str) {
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
            let refused = rate == REFUSING && count < 1_000_000;
            let verdict = if refused { "refused" } else { "admitted" };
            let name = format!("{count}, {}, {threads}, {verdict}", spread.name());
            if !name.starts_with(wanted) {
                continue;
            }
            let rounds = compare(&all, count, spread, threads);
            let mut row = vec![name];
            row.extend((0..all.len()).map(|who| millions(rounds.rate(who))));
            row.push(format!("{:.2}", rounds.ratio(0, 1)));
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
            let rounds = compare(&all, count, Spread::Zipf, threads);
            let nanos = |who: usize| 1e9 * threads as f64 / rounds.rate(who);
            table.row(&[
                format!("{count}, {threads}"),
                format!("{:.0}", nanos(0)),
                format!("{:.0}", nanos(1)),
                format!("{:.2}", rounds.ratio(0, 1)),
            ]);
        }
    }
    println!("{table}");
}

/// Calls per second, round by round and in each of them contender by contender.
struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    fn rate(&self, who: usize) -> f64 {
        median(&self.0.iter().map(|round| round[who]).collect::<Vec<_>>())
    }

    /// How many times as fast as another: compared within each round, where both had the same machine.
    fn ratio(&self, who: usize, other: usize) -> f64 {
        median(&self.0.iter().map(|round| round[who] / round[other]).collect::<Vec<_>>())
    }
}

/// Rounds in which everyone has a turn, in one order and then in the other.
fn compare(all: &[Box<dyn Contender>], count: usize, spread: Spread, threads: usize) -> Rounds {
    let streams: Vec<_> =
        (0..threads).map(|seed| Stream::drawn(spread, count, 7 + seed as u64)).collect();
    for contender in all {
        Stream::of_all(count).each(|key| contender.decide(key));
    }
    let turn = |who: usize| run(&streams, TURN, &|key| all[who].decide(key));
    let round = |number: usize| {
        let mut rates = vec![0.0; all.len()];
        let order = 0..all.len();
        match number % 2 {
            0 => order.for_each(|who| rates[who] = turn(who)),
            _ => order.rev().for_each(|who| rates[who] = turn(who)),
        }
        rates
    };
    Rounds((0..ROUNDS).map(round).collect())
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
