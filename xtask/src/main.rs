//! The project's own commands. `cargo xtask` lists them; each does one thing from the shell of a
//! fresh machine, so that nothing has to be remembered.

mod audit;
mod bench;
mod mutants;
mod run;
mod setup;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <command>

  test [--soak]     install what is missing, then everything: format, lints, tests, docs
  setup             only install what the tests need
  bench micro       in-process decisions and memory beside governor; writes benches/README.md
  bench redis       the Redis store beside the plain way and redis-benchmark; writes benches/README.md
  bench gateway     the gateway beside nginx, HAProxy, Envoy and a bare proxy; writes benches/README.md
  bench doors       the HTTP, gRPC and RESP doors beside throttlecrab, nginx and Redis; writes benches/README.md
  bench office      overrides, the violations log and the way of a change; writes benches/README.md
  bench dashboard   decisions while somebody watches; writes benches/README.md
  mutants [CRATE]   mutation testing of core, memory and engine, or one of them; takes hours
  audit             licences, bans and sources of all dependencies (cargo-deny)

Exit codes: 0 all well, 1 something failed, 2 usage, 3 something is missing here.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["test"] => test::all(test::Effort::Normal),
        ["test", "--soak"] => test::all(test::Effort::Soak),
        ["setup"] => setup::tools(),
        ["bench", name @ ("micro" | "redis" | "office" | "dashboard")] => bench::run(name),
        ["bench", "gateway"] => bench::gateway(),
        ["bench", "doors"] => bench::doors(),
        ["mutants", rest @ ..] => mutants::all(rest),
        ["audit"] => audit::all(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("cargo xtask {}: no such command\n\n{USAGE}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stopped) => {
            eprintln!("\nxtask: {stopped}");
            ExitCode::from(stopped.code())
        }
    }
}
