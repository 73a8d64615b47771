//! Dependency checks with cargo-deny: licences, bans and sources.
//!
//! The advisory database is downloaded from outside the registries. Without access to it, the
//! advisory check only prints a warning.

use crate::run::{TaskError, cargo_command, command_succeeds, run_command};

const VERSION: &str = "0.20.2";

/// Runs cargo-deny, and installs it first if it is missing.
pub(crate) fn run_audit() -> Result<(), TaskError> {
    if !command_succeeds("cargo-deny", &["--version"]) {
        run_command(&mut cargo_command(&[
            "install",
            "cargo-deny",
            "--locked",
            "--version",
            VERSION,
        ]))?;
    }
    run_command(&mut cargo_command(&[
        "deny",
        "--workspace",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))?;
    if run_command(&mut cargo_command(&["deny", "--workspace", "check", "advisories"])).is_err() {
        println!(
            "\nxtask: the advisory check failed; see above. Either a dependency has an advisory, or \
             the advisory database could not be downloaded."
        );
    }
    Ok(())
}
