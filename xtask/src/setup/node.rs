//! Packages of Node: client libraries that the RESP door is proved with, and what drives a browser and judges how
//! accessible a page is. Into a folder under `target/`, at versions that are named here.

use std::process::Command;

use crate::run::{Stopped, root, run, works};

const PACKAGES: [(&str, &str); 4] = [
    ("ioredis", "6.0.0"),
    ("redis", "6.3.1"),
    ("playwright-core", "1.65.0"),
    ("axe-core", "4.14.0"),
];

/// Installs what is missing.
pub(super) fn install() -> Result<(), Stopped> {
    // The tests look there.
    let folder = root().join("target/node");
    let installed = |(package, version): (&str, &str)| {
        let manifest = folder.join("node_modules").join(package).join("package.json");
        let probe = format!("if (require({manifest:?}).version !== {version:?}) process.exit(1)");
        works("node", &["-e", &probe])
    };
    if PACKAGES.into_iter().all(installed) {
        return Ok(());
    }
    std::fs::create_dir_all(&folder).map_err(|error| Stopped::Failed(error.to_string()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]);
    run(npm.arg("--prefix").arg(&folder).args(PACKAGES.map(|(name, at)| format!("{name}@{at}"))))
}
