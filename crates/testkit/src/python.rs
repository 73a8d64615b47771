//! Programs installed as Python packages, in a separate folder that `cargo xtask setup` creates.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command that runs the Python interpreter with these packages.
///
/// # Panics
/// If it is not installed.
#[must_use]
pub fn python() -> Command {
    let python = folder().join("bin/python");
    assert!(python.exists(), "{} is missing: run `cargo xtask setup`", python.display());
    Command::new(python)
}

/// The path of the Envoy program.
///
/// # Errors
/// If it is not installed; the message says how to install it.
pub fn envoy() -> Result<PathBuf, String> {
    let missing = || "Envoy is missing: run `cargo xtask setup`".to_owned();
    // The package's command would start Envoy from Python; we start it directly.
    let mut command = Command::new(folder().join("bin/python"));
    command.args(["-c", "import envoy; print(envoy.__path__[0])"]).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success());
    let package = output.ok_or_else(missing)?.stdout;
    let package = String::from_utf8_lossy(&package).trim().to_owned();
    Some(Path::new(&package).join("_bin/envoy")).filter(|path| path.exists()).ok_or_else(missing)
}

/// Must be the same folder as in `xtask/src/setup/python.rs`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python")
}
