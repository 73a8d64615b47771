//! Client libraries of other languages, which the RESP door is proved with: into a folder under
//! `target/`, at versions that are named here.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Stopped, root, run, works};

const PYTHON: (&str, &str) = ("redis", "8.1.0");
const NODE: [(&str, &str); 2] = [("ioredis", "6.0.0"), ("redis", "6.3.1")];

/// Where they are; the tests look there.
fn folder() -> PathBuf {
    root().join("target/clients")
}

/// Installs what is missing.
pub(crate) fn install() -> Result<(), Stopped> {
    python()?;
    NODE.into_iter().try_for_each(node)
}

fn python() -> Result<(), Stopped> {
    let (package, version) = PYTHON;
    let venv = folder().join("python");
    let python = venv.join("bin/python").display().to_string();
    let probe = format!("import {package}; assert {package}.__version__ == '{version}'");
    if works(&python, &["-c", &probe]) {
        return Ok(());
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(pip.arg(format!("{package}=={version}")))
}

fn node((package, version): (&str, &str)) -> Result<(), Stopped> {
    let folder = folder();
    let manifest = folder.join("node_modules").join(package).join("package.json");
    let probe = format!("if (require({manifest:?}).version !== {version:?}) process.exit(1)");
    if works("node", &["-e", &probe]) {
        return Ok(());
    }
    std::fs::create_dir_all(&folder).map_err(|error| Stopped::Failed(error.to_string()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]);
    run(npm.arg("--prefix").arg(&folder).args(NODE.map(|(name, at)| format!("{name}@{at}"))))
}
