//! Mutation testing of the decision code: cargo-mutants makes one change at a time, and a test must
//! fail.
//!
//! It takes hours, so it is not part of `cargo xtask test`. `.cargo/mutants.toml` says which code
//! is mutated. `docs/internals/mutants.md` lists the survivors and why they are equivalent.

use crate::run::{TaskError, cargo_command, command_succeeds, run_command, workspace_root};

/// Generated cases per property: enough to catch mutants while each run stays short.
const CASES: &str = "300";

/// The crates that decide. The tests of a crate must catch its mutants.
const CRATES: [&str; 3] = ["core", "memory", "limiter"];

/// Tests the mutants of one crate, or of all; further arguments go to cargo-mutants.
pub(crate) fn run_mutants(args: &[&str]) -> Result<(), TaskError> {
    if !command_succeeds("cargo-mutants", &["mutants", "--version"]) {
        run_command(&mut cargo_command(&["install", "--locked", "cargo-mutants"]))?;
    }
    let (named, rest) = match args.split_first() {
        Some((name, rest)) if CRATES.contains(name) => (Some(*name), rest),
        _ => (None, args),
    };
    // Run all crates before a survivor fails the command.
    let crates = CRATES.into_iter().filter(|name| named.is_none_or(|named| named == *name));
    let results: Vec<_> = crates.map(|name| test_mutants(name, rest)).collect();
    results.into_iter().collect()
}

fn test_mutants(crate_name: &str, rest: &[&str]) -> Result<(), TaskError> {
    let package = format!("tidegate-{crate_name}");
    let results = workspace_root().join("target/mutants");
    let (output, build) = (results.join(crate_name), results.join("build"));
    std::fs::create_dir_all(&output).map_err(|error| {
        TaskError::Failed(format!("cannot create {}: {error}", output.display()))
    })?;
    let mut command =
        cargo_command(&["mutants", "--package", &package, "--test-package", &package]);
    command.arg("--output").arg(output).args(rest).args(["--", "--tests"]);
    // Each run mutates a new copy of the source. With one target directory for all copies, the
    // dependencies are built only once.
    command.env("TIDEGATE_CASES", CASES).env("CARGO_TARGET_DIR", build);
    // In milliseconds: the failing case is not read, so do not search for the smallest one.
    command.env("PROPTEST_MAX_SHRINK_TIME", "1");
    run_command(&mut command)
}
