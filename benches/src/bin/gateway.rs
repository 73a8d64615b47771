//! The gateway beside a bare proxy and beside others that limit, on loopback, in one run in which
//! everybody has a turn in every round. `cargo xtask bench gateway` runs it.
//!
//! `gateway three-rules 30` only runs one contender for 30 s under full load and prints its process,
//! for a profiler.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;

use tidegate_bench::gateway::contender::{CONNECTIONS, Contender, PER_SECOND, SECONDS, Who};
use tidegate_bench::gateway::goals::{self, Measured};
use tidegate_bench::gateway::{Turn, setup, wrk};
use tidegate_bench::report::{Table, machine, median};

/// Rounds under full load, which is what most goals are about, and at the fixed rate.
const ROUNDS: usize = 25;
const PACED_ROUNDS: usize = 25;

fn main() {
    let upstream = Arc::new(setup::upstream());
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [name, seconds] = words.as_slice() {
        return profile(name, seconds.parse().expect("seconds"), &upstream);
    }
    println!(
        "{}. {ROUNDS} interleaved rounds under full load, then {PACED_ROUNDS} at {PER_SECOND}/s, turns of {SECONDS} s, \
         {CONNECTIONS} connections; medians.\n",
        machine()
    );
    let mut absent = Vec::new();
    let contenders: Vec<(Who, Contender)> = Who::ALL
        .into_iter()
        .filter_map(|who| match Contender::start(who, &upstream) {
            Ok(contender) => Some((who, contender)),
            Err(why) => {
                absent.push((who, why));
                None
            }
        })
        .collect();
    let measured = measure(&contenders);
    println!("{}", figures(&measured, &absent));
    println!("### Goals\n\n{}", goals::table(&measured));
}

fn measure(contenders: &[(Who, Contender)]) -> Vec<Measured> {
    let full = in_turn(contenders, ROUNDS, Contender::full);
    let paced = in_turn(contenders, PACED_ROUNDS, Contender::paced);
    let both = contenders.iter().zip(full).zip(paced);
    both.map(|(((who, _), full), paced)| Measured { who: *who, full, paced }).collect()
}

/// A turn for everybody in every round.
fn in_turn<T: std::fmt::Debug>(
    contenders: &[(Who, Contender)],
    rounds: usize,
    turn: fn(&Contender) -> T,
) -> Vec<Vec<T>> {
    let mut all: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
    // The first round warms up: connections are opened, caches filled.
    for round in 0..=rounds {
        for ((who, contender), turns) in contenders.iter().zip(&mut all) {
            let turn = turn(contender);
            eprintln!("round {round}: {}: {turn:.1?}", who.name());
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    all
}

fn figures(measured: &[Measured], absent: &[(Who, String)]) -> Table {
    let paced = format!("p50 at {PER_SECOND}/s");
    let mut table = Table::new(&[
        "",
        "requests/s",
        "CPU µs a request",
        "p50 µs",
        "p99 µs",
        &paced,
        "added",
        "p99 then",
        "added",
        "CPU then",
    ]);
    let direct = measured.iter().find(|measured| measured.who == Who::Direct);
    for Measured { who, full, paced } in measured {
        type Tell = fn(&Turn) -> f64;
        let at_full = |tell: Tell| median(&full.iter().map(tell).collect::<Vec<_>>());
        let at_pace = |tell: Tell| median(&paced.iter().map(tell).collect::<Vec<_>>());
        let added = |tell| match direct.filter(|_| *who != Who::Direct) {
            Some(direct) => format!("{:+.0}", goals::added(paced, &direct.paced, tell)),
            None => String::new(),
        };
        table.row(&[
            who.name().to_owned(),
            format!("{:.0}", at_full(|turn| turn.per_second)),
            format!("{:.1}", at_full(|turn| turn.cpu_us)),
            format!("{:.0}", at_full(|turn| turn.latencies.p50)),
            format!("{:.0}", at_full(|turn| turn.latencies.p99)),
            format!("{:.0}", at_pace(|turn| turn.latencies.p50)),
            added(|turn| turn.latencies.p50),
            format!("{:.0}", at_pace(|turn| turn.latencies.p99)),
            added(|turn| turn.latencies.p99),
            format!("{:.1}", at_pace(|turn| turn.cpu_us)),
        ]);
    }
    for (who, why) in absent {
        let mut row = vec![who.name().to_owned(), format!("not measured: {why}")];
        row.extend(std::iter::repeat_n(String::new(), 8));
        table.row(&row);
    }
    table
}

fn profile(name: &str, seconds: u64, upstream: &Arc<setup::Running>) {
    let who = match name {
        "direct" => Who::Direct,
        "bare" => Who::BareProxy,
        "no-rule" => Who::NoRule,
        "one-rule" => Who::OneRule,
        "three-rules" => Who::ThreeRules,
        "refusing" => Who::Refusing,
        "nginx" => Who::Nginx,
        "haproxy" => Who::Haproxy,
        "envoy" => Who::Envoy,
        _ => panic!("nobody is called {name}"),
    };
    let contender = Contender::start(who, upstream).expect("it is on this machine");
    println!("process {} at {}", contender.pid(), contender.address());
    println!("{:?}", wrk::run(contender.address(), CONNECTIONS as usize, seconds));
}
