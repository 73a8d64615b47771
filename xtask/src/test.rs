//! Everything that must hold, in the order in which it fails fastest.

use std::process::Command;
use std::time::Instant;

use crate::run::{Stopped, cargo, run};
use crate::setup;

/// How long the generated tests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// What each change must pass.
    Normal,
    /// Twenty times as many generated cases.
    Soak,
}

/// Generated cases a property in a soak.
const SOAK_CASES: &str = "2000000";

/// A check: its name in the summary, and what to run.
type Check = (&'static str, Command);

/// Installs what is missing and runs all checks; the first that fails ends the run.
#[expect(clippy::disallowed_methods, reason = "the summary tells how long each check took")]
pub(crate) fn all(effort: Effort) -> Result<(), Stopped> {
    setup::tools()?;
    let mut summary = Vec::new();
    for (name, mut command) in checks(effort) {
        let begun = Instant::now();
        run(&mut command)?;
        summary.push(format!("  {name:<12} {:>5} s", begun.elapsed().as_secs()));
    }
    println!("\nxtask: all checks passed\n{}", summary.join("\n"));
    Ok(())
}

fn checks(effort: Effort) -> Vec<Check> {
    let mut tests = cargo(&["test", "--workspace", "--all-targets"]);
    if effort == Effort::Soak {
        tests.env("TIDEGATE_CASES", SOAK_CASES);
    }
    // A directory of its own, because the flag changes every crate.
    let mut models = cargo(&["test", "-p", "tidegate-memory", "--test", "loom", "--release"]);
    models.args(["--target-dir", "target/loom"]).env("RUSTFLAGS", "--cfg loom");
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        ("format", cargo(&["fmt", "--all", "--check"])),
        ("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        ("tests", tests),
        ("doc tests", cargo(&["test", "--workspace", "--doc"])),
        ("models", models),
        ("docs", docs),
    ]
}
