//! Programs that come as packages of Python: a folder of their own, which `cargo xtask setup` fills.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command of the interpreter that knows the packages.
///
/// # Panics
/// When it is not there, with what to do about it.
#[must_use]
pub fn python() -> Command {
    let python = folder().join("bin/python");
    assert!(python.exists(), "{} is not there: run `cargo xtask setup`", python.display());
    Command::new(python)
}

/// Where Envoy is.
///
/// # Errors
/// When it is not here, with what to do about it.
pub fn envoy() -> Result<PathBuf, String> {
    let missing = || "Envoy is not here: run `cargo xtask setup`".to_owned();
    // The package's own command starts the program from Python; we start it ourselves.
    let mut command = Command::new(folder().join("bin/python"));
    command.args(["-c", "import envoy; print(envoy.__path__[0])"]).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success());
    let package = output.ok_or_else(missing)?.stdout;
    let package = String::from_utf8_lossy(&package).trim().to_owned();
    Some(Path::new(&package).join("_bin/envoy")).filter(|path| path.exists()).ok_or_else(missing)
}

/// The same as in `xtask/src/setup/python.rs`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python")
}
