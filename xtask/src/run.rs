//! Running other programs, and saying what went wrong.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a command of ours ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// A program that was run said no.
    Failed(String),
    /// Something that is needed is not on this machine and could not be installed.
    Missing(String),
}

impl Stopped {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Missing(_) => 3,
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::Missing(what) => write!(f, "missing: {what}"),
        }
    }
}

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A cargo command at the top of the checkout.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end and passes its output on.
pub(crate) fn run(command: &mut Command) -> Result<(), Stopped> {
    let shown = show(command);
    println!("\n$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Stopped::Failed(format!("`{shown}` ended with {status}"))),
        Err(error) => Err(Stopped::Missing(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Whether a command can be run and says yes, silently.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={:?}", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let words = std::iter::once(program).chain(command.get_args());
    variables
        .chain(words.map(|word| word.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}
