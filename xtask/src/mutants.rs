//! Mutation testing of the decision code: cargo-mutants makes one change at a time, and a test must
//! fail.
//!
//! It takes hours, so it is not part of `cargo xtask test`. `.cargo/mutants.toml` says which code is
//! mutated. `docs/internals/mutants.md` lists the survivors and why they are equivalent.

use crate::run::{TaskError, cargo_command, command_succeeds, run_command, workspace_root};

/// Generated cases per property: enough to catch mutants while each run stays short.
const CASES: &str = "300";

/// A crate, the packages whose tests must catch its mutants, and the flags that select those tests.
struct MutantTarget {
    name: &'static str,
    package: &'static str,
    test_packages: &'static [&'static str],
    tests: &'static [&'static str],
}

const TARGETS: [MutantTarget; 3] = [
    MutantTarget {
        name: "core",
        package: "tidegate-core",
        // The properties of core are tested against the oracle in testkit.
        test_packages: &["tidegate-core", "tidegate-testkit"],
        tests: &[
            "--lib",
            "--test=batch",
            "--test=bounds",
            "--test=clock",
            "--test=coarse",
            "--test=concurrent",
            "--test=definition",
            "--test=extremes",
            "--test=reload",
        ],
    },
    MutantTarget {
        name: "memory",
        package: "tidegate-memory",
        test_packages: &["tidegate-memory"],
        tests: &["--lib", "--tests"],
    },
    MutantTarget {
        name: "limiter",
        package: "tidegate-limiter",
        test_packages: &["tidegate-limiter"],
        tests: &["--lib", "--tests"],
    },
];

/// Tests the mutants of one crate, or of all; further arguments go to cargo-mutants.
pub(crate) fn run_mutants(args: &[&str]) -> Result<(), TaskError> {
    if !command_succeeds("cargo-mutants", &["mutants", "--version"]) {
        run_command(&mut cargo_command(&["install", "--locked", "cargo-mutants"]))?;
    }
    let (named, rest) = match args.split_first() {
        Some((name, rest)) if TARGETS.iter().any(|target| target.name == *name) => {
            (Some(*name), rest)
        }
        _ => (None, args),
    };
    // Run all targets before a survivor fails the command.
    let targets = TARGETS.iter().filter(|target| named.is_none_or(|name| name == target.name));
    let done: Vec<_> = targets.map(|target| test_target(target, rest)).collect();
    done.into_iter().collect()
}

fn test_target(target: &MutantTarget, rest: &[&str]) -> Result<(), TaskError> {
    let output = workspace_root().join("target/mutants").join(target.name);
    let mut command = cargo_command(&["mutants", "--package", target.package]);
    target.test_packages.iter().for_each(|package| {
        command.args(["--test-package", package]);
    });
    command.arg("--output").arg(output).args(rest).arg("--").args(target.tests);
    run_command(command.env("TIDEGATE_CASES", CASES))
}
