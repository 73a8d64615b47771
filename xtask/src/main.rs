//! Project tasks; `cargo xtask` lists them. Each command works on a fresh machine without further
//! setup.

mod audit;
mod bench;
mod mutants;
mod run;
mod setup;
mod simulate;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <command>

  test [--soak]     install missing tools, then check format, lints, tests and docs
  setup             install the tools that the tests need
  bench micro       in-process decisions and memory, compared with governor
  bench redis       Redis store, compared with a plain script and redis-benchmark
  bench fleet       nodes that share a Redis: exact, leased and asynchronous rules
  bench regions     shares and borrowing between regions, compared with a single region
  bench gateway     gateway, compared with nginx, HAProxy, Envoy and a bare proxy
  bench apis        decision APIs (HTTP, gRPC, RESP), compared with throttlecrab, nginx and Redis
  bench middleware  an axum service under our tower layer and others; the library beside governor
  bench rulestore   rules in a database: overrides, violation log and rule propagation
  bench dashboard   decisions with live dashboards
  simulate [OPTION…]  simulate fleets from seeds, and check every bound; --seeds COUNT, --seed SEED
  simulate --scale [OPTION…]  what a fleet asks of its stores: calls, shards and memory; --help
  mutants [CRATE]   mutation testing of core, memory and limiter, or one of them; takes hours
  audit             licences, bans and sources of all dependencies (cargo-deny)

Each benchmark writes its tables to benches/README.md.

Exit codes: 0 success, 1 a check failed, 2 wrong usage, 3 a required tool is missing.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["test"] => test::run_checks(test::TestEffort::Normal),
        ["test", "--soak"] => test::run_checks(test::TestEffort::Soak),
        ["setup"] => setup::install_tools(),
        ["bench", name @ ("micro" | "redis" | "regions" | "rulestore" | "dashboard")] => {
            bench::run_bench(name)
        }
        ["bench", "fleet"] => bench::bench_fleet(),
        ["bench", "middleware"] => bench::bench_middleware(),
        ["bench", "gateway"] => bench::bench_gateway(),
        ["bench", "apis"] => bench::bench_apis(),
        ["simulate", rest @ ..] => simulate::run_seeds(rest),
        ["mutants", rest @ ..] => mutants::run_mutants(rest),
        ["audit"] => audit::run_audit(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("unknown command: cargo xtask {}\n\n{USAGE}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
