//! Compares the gateway with a bare proxy and with other rate-limiting proxies, on loopback. Every
//! contender takes a turn in every round. `cargo xtask bench gateway` runs it.
//!
//! For a profiler, `gateway three-rules 30` runs one contender under full load for 30 s and prints
//! its process id.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;

use tidegate_bench::gateway::contender::{
    CONNECTIONS, ContenderKind, GatewayContender, PER_SECOND, SECONDS,
};
use tidegate_bench::gateway::goals::{self, ContenderTurns};
use tidegate_bench::gateway::{GatewayTurn, setup, wrk};
use tidegate_bench::report::{MarkdownTable, machine_summary, median};

/// Rounds under full load, which most goals are measured under.
const ROUNDS: usize = 25;
/// Rounds at the fixed rate.
const PACED_ROUNDS: usize = 25;

fn main() {
    let upstream = Arc::new(setup::upstream());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [name, seconds] = args.as_slice() {
        return profile(name, seconds.parse().expect("SECONDS is a number"), &upstream);
    }
    println!(
        "{}. {ROUNDS} interleaved rounds under full load, then {PACED_ROUNDS} at {PER_SECOND}/s, \
         turns of {SECONDS} s, {CONNECTIONS} connections; medians.\n",
        machine_summary()
    );
    let mut not_installed = Vec::new();
    let contenders: Vec<(ContenderKind, GatewayContender)> = ContenderKind::ALL
        .into_iter()
        .filter_map(|kind| match GatewayContender::start(kind, &upstream) {
            Ok(contender) => Some((kind, contender)),
            Err(reason) => {
                not_installed.push((kind, reason));
                None
            }
        })
        .collect();
    let measured = measure(&contenders);
    println!("{}", results_table(&measured, &not_installed));
    println!("### Goals\n\n{}", goals::goals_table(&measured));
}

fn measure(contenders: &[(ContenderKind, GatewayContender)]) -> Vec<ContenderTurns> {
    let full = run_rounds(contenders, ROUNDS, GatewayContender::full_load_turn);
    let paced = run_rounds(contenders, PACED_ROUNDS, GatewayContender::paced_turn);
    let both = contenders.iter().zip(full).zip(paced);
    both.map(|(((kind, _), full), paced)| ContenderTurns { kind: *kind, full, paced }).collect()
}

/// Runs a warm-up round and then `rounds` rounds. Every contender takes one turn in each.
fn run_rounds<T: std::fmt::Debug>(
    contenders: &[(ContenderKind, GatewayContender)],
    rounds: usize,
    turn: fn(&GatewayContender) -> T,
) -> Vec<Vec<T>> {
    let mut all: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
    // Round 0 opens connections and fills caches; its results are discarded.
    for round in 0..=rounds {
        for ((kind, contender), turns) in contenders.iter().zip(&mut all) {
            let turn = turn(contender);
            eprintln!("round {round}: {}: {turn:.1?}", kind.name());
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    all
}

fn results_table(
    measured: &[ContenderTurns],
    not_installed: &[(ContenderKind, String)],
) -> MarkdownTable {
    let paced_p50 = format!("p50 µs at {PER_SECOND}/s");
    let paced_p99 = format!("p99 µs at {PER_SECOND}/s");
    let paced_cpu = format!("CPU µs at {PER_SECOND}/s");
    let mut table = MarkdownTable::new(&[
        "",
        "requests/s",
        "CPU µs per request",
        "p50 µs",
        "p99 µs",
        &paced_p50,
        "added p50",
        &paced_p99,
        "added p99",
        &paced_cpu,
    ]);
    let direct = measured.iter().find(|measured| measured.kind == ContenderKind::Direct);
    for ContenderTurns { kind, full, paced } in measured {
        type TurnMetric = fn(&GatewayTurn) -> f64;
        let at_full = |metric: TurnMetric| median(&full.iter().map(metric).collect::<Vec<_>>());
        let at_pace = |metric: TurnMetric| median(&paced.iter().map(metric).collect::<Vec<_>>());
        let added = |metric| match direct.filter(|_| *kind != ContenderKind::Direct) {
            Some(direct) => format!("{:+.0}", goals::added_latency(paced, &direct.paced, metric)),
            None => String::new(),
        };
        table.push_row(&[
            kind.name().to_owned(),
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
    for (kind, reason) in not_installed {
        let mut row = vec![kind.name().to_owned(), format!("not measured: {reason}")];
        row.extend(std::iter::repeat_n(String::new(), 8));
        table.push_row(&row);
    }
    table
}

/// Runs one contender under full load and prints its process id, for a profiler.
fn profile(name: &str, seconds: u64, upstream: &Arc<setup::GatewayProcess>) {
    let kind = match name {
        "direct" => ContenderKind::Direct,
        "bare" => ContenderKind::BareProxy,
        "no-rule" => ContenderKind::NoRule,
        "one-rule" => ContenderKind::OneRule,
        "three-rules" => ContenderKind::ThreeRules,
        "refusing" => ContenderKind::Refusing,
        "nginx" => ContenderKind::Nginx,
        "haproxy" => ContenderKind::Haproxy,
        "envoy" => ContenderKind::Envoy,
        _ => panic!(
            "unknown contender `{name}`: use direct, bare, no-rule, one-rule, three-rules, refusing, \
             nginx, haproxy or envoy"
        ),
    };
    let contender = GatewayContender::start(kind, upstream).expect("the contender is installed");
    println!("process {} at {}", contender.pid(), contender.address());
    println!("{:?}", wrk::run(contender.address(), CONNECTIONS as usize, seconds));
}
