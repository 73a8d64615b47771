//! Compares the decision APIs with throttlecrab and with the ceiling of this machine, on loopback.
//! Every contender takes a turn in every round. `cargo xtask bench apis` runs it.
//!
//! For a profiler, `apis http 30` runs 30 turns at the HTTP API of Tidegate and prints the process
//! id. `apis http 30 throttlecrab` does the same with throttlecrab.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use tidegate_bench::apis::contender::{ApiContender, ApiContenders};
use tidegate_bench::apis::goals::{self, ApiRounds};
use tidegate_bench::apis::{ApiTurn, BenchApi, CONNECTIONS, SECONDS};
use tidegate_bench::report::{MarkdownTable, machine_summary, median};

const ROUNDS: usize = 9;

/// Assumed responses per second in the first round, before a rate is known.
const FIRST_RATE: f64 = 20_000.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = machine_summary();
    let contenders = ApiContenders::start();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        [api, turns] => return profile(&contenders, api, turns, ApiContender::Tidegate),
        [api, turns, "throttlecrab"] => {
            return profile(&contenders, api, turns, ApiContender::Throttlecrab);
        }
        _ => panic!("usage: apis [resp|pipeline|http|grpc TURNS [throttlecrab]]"),
    }
    println!(
        "{machine}. {ROUNDS} interleaved rounds, turns of {SECONDS} s, {CONNECTIONS} connections; \
         medians.\n"
    );
    let rounds = measure(&contenders);
    println!("{}", results_table(&rounds));
    println!("### Goals\n\n{}", goals::goals_table(&rounds));
}

fn measure(contenders: &ApiContenders) -> Vec<((BenchApi, ApiContender), Vec<ApiTurn>)> {
    let pairs = BenchApi::ALL
        .into_iter()
        .flat_map(|api| ApiContender::ALL.map(|contender| (api, contender)));
    let mut rounds: Vec<_> = pairs.map(|pair| (pair, Vec::<ApiTurn>::new())).collect();
    // Round 0 warms up, and measures how many commands make a turn of the desired length.
    let mut rates = vec![FIRST_RATE; rounds.len()];
    for round in 0..=ROUNDS {
        for (((api, contender), turns), rate) in rounds.iter_mut().zip(&mut rates) {
            let turn = contenders.run_turn(*contender, *api, *rate);
            eprintln!("round {round}: {}, {contender:?}: {turn:.1?}", api.name());
            match round {
                0 => *rate = turn.per_second,
                _ => turns.push(turn),
            }
        }
    }
    rounds
}

fn results_table(rounds: &ApiRounds) -> MarkdownTable {
    let mut table =
        MarkdownTable::new(&["API", "", "responses/s", "CPU µs per response", "p50 µs", "p99 µs"]);
    for ((api, contender), turns) in rounds {
        let number =
            |field: fn(&ApiTurn) -> f64| median(&turns.iter().map(field).collect::<Vec<_>>());
        table.push_row(&[
            api.name().to_owned(),
            contender.name(*api).to_owned(),
            format!("{:.0}", number(|turn| turn.per_second)),
            format!("{:.1}", number(|turn| turn.cpu_us)),
            format!("{:.0}", number(|turn| turn.latencies.p50)),
            format!("{:.0}", number(|turn| turn.latencies.p99)),
        ]);
    }
    table
}

/// Runs turns of one contender at one API and prints its process id, for a profiler.
fn profile(contenders: &ApiContenders, api: &str, turns: &str, contender: ApiContender) {
    let api = match api {
        "resp" => BenchApi::Resp,
        "pipeline" => BenchApi::Pipeline,
        "http" => BenchApi::Http,
        "grpc" => BenchApi::Grpc,
        _ => panic!("unknown API `{api}`: use resp, pipeline, http or grpc"),
    };
    let running = contenders.process(contender, api);
    println!("process {} at {}", running.pid(), running.address(api));
    let mut rate = FIRST_RATE;
    for _ in 0..turns.parse().expect("TURNS is a number") {
        let turn = contenders.run_turn(contender, api, rate);
        println!("{turn:.1?}");
        rate = turn.per_second;
    }
}
