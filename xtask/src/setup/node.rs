//! Node packages for the tests, at pinned versions in a folder under `target/`: RESP client
//! libraries, the frameworks behind the middlewares, browser automation and an accessibility
//! checker.

use std::process::Command;

use crate::run::{TaskError, command_succeeds, run_command, workspace_root};

const PACKAGES: [(&str, &str); 6] = [
    ("express", "5.3.0"),
    ("fastify", "5.12.8"),
    ("ioredis", "6.0.0"),
    ("redis", "6.3.1"),
    ("playwright-core", "1.65.0"),
    ("axe-core", "4.14.0"),
];

/// Installs the packages that are missing.
pub(super) fn install() -> Result<(), TaskError> {
    // The tests expect the packages in this folder.
    let folder = workspace_root().join("target/node");
    let installed = |(package, version): (&str, &str)| {
        let manifest = folder.join("node_modules").join(package).join("package.json");
        let probe = format!("if (require({manifest:?}).version !== {version:?}) process.exit(1)");
        command_succeeds("node", &["-e", &probe])
    };
    if PACKAGES.into_iter().all(installed) {
        return Ok(());
    }
    std::fs::create_dir_all(&folder).map_err(|error| TaskError::Failed(error.to_string()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]);
    run_command(
        npm.arg("--prefix").arg(&folder).args(PACKAGES.map(|(name, at)| format!("{name}@{at}"))),
    )
}
