//! The doors beside throttlecrab, and beside the most that anything answers here, on loopback, in one run in
//! which everybody has a turn in every round. `cargo xtask bench doors` runs it.
//!
//! `doors http 30` only asks tidegate at one door for 30 turns and prints its process, for a profiler;
//! `doors http 30 throttlecrab` asks another.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use tidegate_bench::doors::contender::{Contenders, Who};
use tidegate_bench::doors::goals::{self, Rounds};
use tidegate_bench::doors::{CONNECTIONS, Door, SECONDS, Turn};
use tidegate_bench::report::{Table, machine, median};

const ROUNDS: usize = 9;

/// Commands in the first round, before it is known how many are answered in a turn.
const FIRST: f64 = 20_000.0;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let machine = machine();
    let contenders = Contenders::start();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        [door, turns] => return profile(&contenders, door, turns, Who::Tidegate),
        [door, turns, "throttlecrab"] => {
            return profile(&contenders, door, turns, Who::Throttlecrab);
        }
        _ => panic!("doors [resp|pipeline|http|grpc TURNS [throttlecrab]]"),
    }
    println!(
        "{machine}. {ROUNDS} interleaved rounds, turns of {SECONDS} s, {CONNECTIONS} connections; \
         medians.\n"
    );
    let rounds = measure(&contenders);
    println!("{}", figures(&rounds));
    println!("### Goals\n\n{}", goals::table(&rounds));
}

fn measure(contenders: &Contenders) -> Vec<((Door, Who), Vec<Turn>)> {
    let pairs = Door::ALL.into_iter().flat_map(|door| Who::ALL.map(|who| (door, who)));
    let mut rounds: Vec<_> = pairs.map(|pair| (pair, Vec::<Turn>::new())).collect();
    // The first round warms up, and tells how many commands make a turn.
    let mut rates = vec![FIRST; rounds.len()];
    for round in 0..=ROUNDS {
        for (((door, who), turns), rate) in rounds.iter_mut().zip(&mut rates) {
            let turn = contenders.turn(*who, *door, *rate);
            eprintln!("round {round}: {}, {who:?}: {turn:.1?}", door.name());
            match round {
                0 => *rate = turn.per_second,
                _ => turns.push(turn),
            }
        }
    }
    rounds
}

fn figures(rounds: &Rounds) -> Table {
    let mut table = Table::new(&["door", "", "answers/s", "CPU µs an answer", "p50 µs", "p99 µs"]);
    for ((door, who), turns) in rounds {
        let number = |tell: fn(&Turn) -> f64| median(&turns.iter().map(tell).collect::<Vec<_>>());
        table.row(&[
            door.name().to_owned(),
            who.name(*door).to_owned(),
            format!("{:.0}", number(|turn| turn.per_second)),
            format!("{:.1}", number(|turn| turn.cpu_us)),
            format!("{:.0}", number(|turn| turn.latencies.p50)),
            format!("{:.0}", number(|turn| turn.latencies.p99)),
        ]);
    }
    table
}

fn profile(contenders: &Contenders, door: &str, turns: &str, who: Who) {
    let door = match door {
        "resp" => Door::Resp,
        "pipeline" => Door::Pipeline,
        "http" => Door::Http,
        "grpc" => Door::Grpc,
        _ => panic!("no door is called {door}"),
    };
    let running = contenders.running(who, door);
    println!("process {} at {}", running.pid(), running.address(door));
    let mut rate = FIRST;
    for _ in 0..turns.parse().expect("a number of turns") {
        let turn = contenders.turn(who, door, rate);
        println!("{turn:.1?}");
        rate = turn.per_second;
    }
}
