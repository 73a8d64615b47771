//! All checks that a change must pass; the fastest run first.

use std::process::Command;
use std::time::Instant;

use crate::run::{TaskError, cargo_command, run_command};
use crate::setup;

/// How many cases the property tests generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestEffort {
    /// The default, for every change.
    Normal,
    /// Twenty times as many cases.
    Soak,
}

/// Generated cases per property in a soak run.
const SOAK_CASES: &str = "2000000";

/// A check: its name in the summary, and the command to run.
type CheckCommand = (&'static str, Command);

/// Installs missing tools and runs all checks; the first failure ends the run.
#[expect(clippy::disallowed_methods, reason = "the summary shows how long each check took")]
pub(crate) fn run_checks(effort: TestEffort) -> Result<(), TaskError> {
    setup::install_tools()?;
    let mut summary = Vec::new();
    for (name, mut command) in list_checks(effort) {
        let start = Instant::now();
        run_command(&mut command)?;
        summary.push(format!("  {name:<12} {:>5} s", start.elapsed().as_secs()));
    }
    println!("\nxtask: all checks passed\n{}", summary.join("\n"));
    Ok(())
}

fn list_checks(effort: TestEffort) -> Vec<CheckCommand> {
    let mut tests = cargo_command(&["test", "--workspace", "--all-targets"]);
    if effort == TestEffort::Soak {
        tests.env("TIDEGATE_CASES", SOAK_CASES);
    }
    // A separate target directory, because the flag rebuilds every crate.
    let mut models =
        cargo_command(&["test", "-p", "tidegate-memory", "--test", "loom", "--release"]);
    models.args(["--target-dir", "target/loom"]).env("RUSTFLAGS", "--cfg loom");
    let mut docs = cargo_command(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        ("format", cargo_command(&["fmt", "--all", "--check"])),
        (
            "lints",
            cargo_command(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ),
        ("tests", tests),
        ("doc tests", cargo_command(&["test", "--workspace", "--doc"])),
        ("models", models),
        ("docs", docs),
    ]
}
