//! Runs other programs and reports errors.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a task ended early.
#[derive(Debug)]
pub(crate) enum TaskError {
    /// A program returned a failure.
    Failed(String),
    /// A required program is not on this machine and could not be installed.
    Missing(String),
}

impl TaskError {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Missing(_) => 3,
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::Missing(what) => write!(f, "missing: {what}"),
        }
    }
}

/// The root folder of the workspace.
pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A cargo command that runs in the root folder of the workspace.
pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(workspace_root());
    command
}

/// Runs a command to completion; its output goes to the terminal.
pub(crate) fn run_command(command: &mut Command) -> Result<(), TaskError> {
    let shown = format_command(command);
    println!("\n$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::Failed(format!("`{shown}` exited with {status}"))),
        Err(error) => Err(TaskError::Missing(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Whether a command exists and succeeds. Its output is discarded.
pub(crate) fn command_succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn format_command(command: &Command) -> String {
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
