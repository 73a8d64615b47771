//! `tidegate bench`: measures decisions per second with the user's rules, in this process.
//!
//! The measurement covers a decision: building facts, matching rules, hashing keys and charging
//! counters in memory. It does not include reading requests from a network.

mod sample_requests;
mod worker;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::key::Secret;
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;

use crate::cli::BenchArgs;
use crate::table::format_columns;
use sample_requests::SampleRequests;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BOLD, DIM};
use tidegate_server::rule_source::DocumentSource;
use tidegate_server::{CommandOutcome, clock};
use worker::WorkerTally;

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct BenchSetup {
    rules: usize,
    rules_hit: usize,
    keys: u32,
    threads: u32,
}

/// The result of the measurement.
#[derive(Debug, Serialize)]
struct BenchReport {
    #[serde(flatten)]
    setup: BenchSetup,
    seconds: f64,
    decisions: u64,
    allowed: u64,
    refused: u64,
    decisions_per_second: u64,
    ns_per_decision: u64,
    p50_ns: u64,
    p99_ns: u64,
    note: &'static str,
}

const NOTE: &str = "in this process, with the in-memory store, clients picked uniformly, no \
    network; percentiles from one decision in 64, including the time to read the clock";

/// Runs the measurement and prints the report.
///
/// # Errors
/// If the rules cannot be read, or no request can be generated for them.
pub(crate) fn run(args: &BenchArgs) -> Result<CommandOutcome, CommandError> {
    let source = DocumentSource::new(&args.rules);
    let rules = source.load()?.compile(Secret::UNSET)?;
    let requests = SampleRequests::new(&rules, args.keys);
    if requests.rules_hit() == 0 {
        return Err(CommandError::Failed(format!(
            "{} has no active rule for which a request can be generated",
            source.name()
        )));
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.unwrap_or_else(|| u32::try_from(cores).unwrap_or(1));
    let setup = BenchSetup {
        rules: rules.rules().len(),
        rules_hit: requests.rules_hit(),
        keys: args.keys,
        threads,
    };
    let limiter = Limiter::new(MemoryStore::new(), rules);
    let (tally, took) = measure(&limiter, &requests, threads, args.seconds);
    let report = build_report(tally, took, setup);
    if args.output.json {
        output::print_json(&report)?;
    } else {
        output::print_text(&render_report(&source.name(), &report))?;
    }
    Ok(CommandOutcome::Success)
}

fn measure(
    limiter: &Limiter<MemoryStore>,
    requests: &SampleRequests,
    threads: u32,
    seconds: u32,
) -> (WorkerTally, Duration) {
    let stop = AtomicBool::new(false);
    let start = clock::now();
    let tally = thread::scope(|scope| {
        let work = |seed| {
            scope.spawn({
                let stop = &stop;
                move || worker::run(limiter, requests, u64::from(seed), stop)
            })
        };
        let workers: Vec<_> = (1..=threads).map(work).collect();
        thread::sleep(Duration::from_secs(seconds.into()));
        stop.store(true, Ordering::Relaxed);
        // Workers that panicked are left out of the result.
        let done = workers.into_iter().filter_map(|worker| worker.join().ok());
        done.fold(WorkerTally::default(), WorkerTally::merge)
    });
    (tally, start.elapsed())
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive figures for display, far from the limits of the types"
)]
fn build_report(mut tally: WorkerTally, took: Duration, setup: BenchSetup) -> BenchReport {
    tally.samples_ns.sort_unstable();
    let percentile = |percent: usize| {
        let at = tally.samples_ns.len().saturating_sub(1) * percent / 100;
        tally.samples_ns.get(at).copied().unwrap_or_default()
    };
    let decisions = tally.allowed + tally.refused;
    let per_second = decisions as f64 / took.as_secs_f64();
    BenchReport {
        setup,
        seconds: (took.as_secs_f64() * 1_000.0).round() / 1_000.0,
        decisions,
        allowed: tally.allowed,
        refused: tally.refused,
        decisions_per_second: per_second as u64,
        ns_per_decision: (f64::from(setup.threads) * 1e9 / per_second.max(1.0)) as u64,
        p50_ns: percentile(50),
        p99_ns: percentile(99),
        note: NOTE,
    }
}

fn render_report(source: &str, report: &BenchReport) -> String {
    let setup = report.setup;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = [
        row("rules", format!("{source}: {} of {} hit", setup.rules_hit, setup.rules)),
        row("clients", group_digits(setup.keys.into())),
        row("threads", setup.threads.to_string()),
        row("duration", format!("{:.2} s", report.seconds)),
        row("allowed", group_digits(report.allowed)),
        row("refused", group_digits(report.refused)),
        row("decision", format!("{} ns per thread", group_digits(report.ns_per_decision))),
        row(
            "p50, p99",
            format!("{} ns, {} ns", group_digits(report.p50_ns), group_digits(report.p99_ns)),
        ),
    ];
    let rate = group_digits(report.decisions_per_second);
    let mut text = format!("{BOLD}{rate} decisions per second{BOLD:#}\n");
    text.push_str(&format_columns(2, &rows));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{DIM}Measured {NOTE}.{DIM:#}");
    text
}

/// Formats a number with a space between groups of three digits.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_percentiles_come_from_samples() {
        assert_eq!(
            ["7", "700", "7 000", "1 234 567"],
            [7, 700, 7_000, 1_234_567].map(group_digits)[..]
        );
        let tally = WorkerTally { allowed: 60, refused: 40, samples_ns: (0..=100).rev().collect() };
        let setup = BenchSetup { threads: 4, ..BenchSetup::default() };
        let report = build_report(tally, Duration::from_secs(2), setup);
        assert_eq!((report.decisions, report.decisions_per_second), (100, 50));
        assert_eq!((report.ns_per_decision, report.p50_ns, report.p99_ns), (80_000_000, 50, 99));
    }
}
