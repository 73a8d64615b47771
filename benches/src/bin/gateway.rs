//! The gateway beside a bare proxy and beside others that limit, on loopback, in one run in which
//! everybody has a turn in every round. `cargo xtask bench gateway` runs it.
//!
//! `gateway three-rules 30` only runs one contender for 30 s under full load and prints its process,
//! for a profiler.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;

use tidegate_bench::gateway::contender::{CONNECTIONS, Contender, PER_SECOND, SECONDS, Who};
use tidegate_bench::gateway::goals::{self, Rounds};
use tidegate_bench::gateway::{Turn, setup, wrk};
use tidegate_bench::report::{Table, machine, median};

const ROUNDS: usize = 11;

fn main() {
    let upstream = Arc::new(setup::upstream());
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [name, seconds] = words.as_slice() {
        return profile(name, seconds.parse().expect("seconds"), &upstream);
    }
    println!(
        "{}. {ROUNDS} interleaved rounds, turns of {SECONDS} s, {CONNECTIONS} connections; medians.\n",
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
    let rounds = measure(&contenders);
    println!("{}", figures(&rounds, &absent));
    println!("### Goals\n\n{}", goals::table(&rounds));
}

fn measure(contenders: &[(Who, Contender)]) -> Vec<(Who, Vec<Turn>)> {
    let mut rounds: Vec<(Who, Vec<Turn>)> =
        contenders.iter().map(|(who, _)| (*who, Vec::new())).collect();
    // The first round warms up: connections are opened, caches filled.
    for round in 0..=ROUNDS {
        for ((who, contender), (_, turns)) in contenders.iter().zip(&mut rounds) {
            let turn = contender.turn();
            eprintln!("round {round}: {}: {turn:.1?}", who.name());
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    rounds
}

fn figures(rounds: &Rounds, absent: &[(Who, String)]) -> Table {
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
    ]);
    let column = |turns: &[Turn], tell: fn(&Turn) -> f64| {
        median(&turns.iter().map(tell).collect::<Vec<_>>())
    };
    let direct = rounds.iter().find(|(who, _)| *who == Who::Direct).map(|(_, turns)| turns);
    for (who, turns) in rounds {
        let number = |tell| format!("{:.0}", column(turns, tell));
        let added = |tell: fn(&Turn) -> f64| match direct.filter(|_| *who != Who::Direct) {
            Some(direct) => {
                let pairs =
                    turns.iter().zip(direct).map(|(turn, direct)| tell(turn) - tell(direct));
                format!("{:+.0}", median(&pairs.collect::<Vec<_>>()))
            }
            None => String::new(),
        };
        table.row(&[
            who.name().to_owned(),
            number(|turn| turn.per_second),
            format!("{:.1}", column(turns, |turn| turn.cpu_us)),
            number(|turn| turn.full.p50),
            number(|turn| turn.full.p99),
            number(|turn| turn.paced.p50),
            added(|turn| turn.paced.p50),
            number(|turn| turn.paced.p99),
            added(|turn| turn.paced.p99),
        ]);
    }
    for (who, why) in absent {
        let mut row = vec![who.name().to_owned(), format!("not measured: {why}")];
        row.extend(std::iter::repeat_n(String::new(), 7));
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
