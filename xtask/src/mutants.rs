//! Mutation testing of what decides: cargo-mutants changes one thing at a time, and a test must notice.
//!
//! It takes hours, so it is no part of `cargo xtask test`. What is changed and what is left alone says
//! `.cargo/mutants.toml`; survivors and why they are equivalent, `docs/internals/mutants.md`.

use crate::run::{Stopped, cargo, root, run, works};

/// Generated cases a property: enough to notice, and each run is short.
const CASES: &str = "300";

/// A crate, the tests that must notice its mutants, and how they are chosen.
struct Target {
    name: &'static str,
    package: &'static str,
    test_packages: &'static [&'static str],
    tests: &'static [&'static str],
}

const TARGETS: [Target; 3] = [
    Target {
        name: "core",
        package: "tidegate-core",
        // Its laws are tested beside the oracle.
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
    Target {
        name: "memory",
        package: "tidegate-memory",
        test_packages: &["tidegate-memory"],
        tests: &["--lib", "--tests"],
    },
    Target {
        name: "engine",
        package: "tidegate-engine",
        test_packages: &["tidegate-engine"],
        tests: &["--lib", "--tests"],
    },
];

/// Tries the mutants of one crate, or of all; `rest` goes to cargo-mutants.
pub(crate) fn all(args: &[&str]) -> Result<(), Stopped> {
    if !works("cargo-mutants", &["mutants", "--version"]) {
        run(&mut cargo(&["install", "--locked", "cargo-mutants"]))?;
    }
    let (named, rest) = match args.split_first() {
        Some((name, rest)) if TARGETS.iter().any(|target| target.name == *name) => {
            (Some(*name), rest)
        }
        _ => (None, args),
    };
    // All of them, before a survivor ends the run.
    let targets = TARGETS.iter().filter(|target| named.is_none_or(|name| name == target.name));
    let done: Vec<_> = targets.map(|target| test(target, rest)).collect();
    done.into_iter().collect()
}

fn test(target: &Target, rest: &[&str]) -> Result<(), Stopped> {
    let output = root().join("target/mutants").join(target.name);
    let mut command = cargo(&["mutants", "--package", target.package]);
    target.test_packages.iter().for_each(|package| {
        command.args(["--test-package", package]);
    });
    command.arg("--output").arg(output).args(rest).arg("--").args(target.tests);
    run(command.env("TIDEGATE_CASES", CASES))
}
