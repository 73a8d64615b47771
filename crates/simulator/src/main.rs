//! Runs many seeds, and prints the trace of the first that fails.

use std::process::ExitCode;

use tidegate_simulator::scale::{SCALE_USAGE, parse_options};
use tidegate_simulator::{RunOptions, SeededBug, run_seed};

const USAGE: &str = "\
Usage: simulate [--seeds COUNT] [--from SEED] [--seed SEED] [--bug NAME] [--keep-going]
       simulate --scale [OPTION…]     calls, shards and memory of a fleet; --scale --help has more

  --seeds COUNT   how many seeds to run (default 10000); one in four has several regions
  --from SEED     the first seed (default 0)
  --seed SEED     run this seed only, and print its trace
  --bug NAME      switch on a known bug, to see that it is found
  --keep-going    report every failing seed, without traces";

struct Arguments {
    seeds: u64,
    from: u64,
    only: Option<u64>,
    bug: Option<SeededBug>,
    keeps_going: bool,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = words.iter().position(|word| word == "--scale") {
        words.remove(at);
        return print_scale(words);
    }
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = parse(words.into_iter()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let bug = arguments.bug;
    if let Some(seed) = arguments.only {
        return print_run(seed, bug);
    }
    let (mut failed, mut decided) = (0_u64, 0_u64);
    for seed in arguments.from..arguments.from + arguments.seeds {
        let summary = run_seed(seed, RunOptions { bug, keeps_trace: false });
        decided += summary.decided;
        let Some(violation) = summary.violation else { continue };
        if !arguments.keeps_going {
            return print_run(seed, bug);
        }
        failed += 1;
        println!("seed {seed}: {violation}");
    }
    println!("{} seeds, {decided} requests, {failed} seeds failed", arguments.seeds);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_scale(options: Vec<String>) -> ExitCode {
    if options.iter().any(|word| word == "--help" || word == "-h") {
        println!("{SCALE_USAGE}");
        return ExitCode::SUCCESS;
    }
    let request = match parse_options(options) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("{error}\n\n{SCALE_USAGE}");
            return ExitCode::from(2);
        }
    };
    let estimate = request.case.estimate().map(|estimate| println!("{estimate}"));
    let check = || match request.direct_seconds {
        Some(seconds) => request.case.check(seconds).map(|check| println!("{check}")),
        None => Ok(()),
    };
    match estimate.and_then(|()| check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print_run(seed: u64, bug: Option<SeededBug>) -> ExitCode {
    let summary = run_seed(seed, RunOptions { bug, keeps_trace: true });
    summary.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: {summary}");
    match summary.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("seed {seed} failed: {violation}");
            println!("repeat with: cargo xtask simulate --seed {seed}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut parsed =
        Arguments { seeds: 10_000, from: 0, only: None, bug: None, keeps_going: false };
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match name.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--from" => parsed.from = number()?,
            "--seed" => parsed.only = Some(number()?),
            "--keep-going" => parsed.keeps_going = true,
            "--bug" => parsed.bug = Some(bug_named(&arguments.next()?)?),
            _ => return None,
        }
    }
    Some(parsed)
}

fn bug_named(name: &str) -> Option<SeededBug> {
    use SeededBug as Bug;
    let bugs = [
        Bug::StaleVerdict,
        Bug::FlushRepeated,
        Bug::EditResetsUsage,
        Bug::ExpiredBorrowSpent,
        Bug::BorrowRefundedAtHome,
        Bug::LoanNotCharged,
        Bug::ShareAppliedTwice,
        Bug::MarkerNotChecked,
        Bug::ExpiredLeaseSpent,
        Bug::WholeLimitInFallback,
        Bug::ExpiryFromAnswer,
        Bug::RefundDatedByDecision,
    ];
    bugs.into_iter().find(|bug| format!("{bug:?}") == name)
}
