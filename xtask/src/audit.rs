//! Dependencies: licences, bans, sources. The advisory database comes from outside the registries,
//! so that check runs only where it can be reached, and says so where not.

use crate::run::{Stopped, cargo, run, works};

const VERSION: &str = "0.20.2";

/// Runs cargo-deny, installing it first if need be.
pub(crate) fn all() -> Result<(), Stopped> {
    if !works("cargo-deny", &["--version"]) {
        run(&mut cargo(&["install", "cargo-deny", "--locked", "--version", VERSION]))?;
    }
    run(&mut cargo(&["deny", "--workspace", "check", "licenses", "bans", "sources"]))?;
    if run(&mut cargo(&["deny", "--workspace", "check", "advisories"])).is_err() {
        println!(
            "\nxtask: advisories NOT checked or not clean: see above; the database may be out of reach"
        );
    }
    Ok(())
}
