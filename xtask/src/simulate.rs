//! Runs the simulator, optimised, with the given options.

use crate::run::{TaskError, cargo_command, run_command};

/// Simulates seeds; a seed that fails prints its trace.
pub(crate) fn run_seeds(options: &[&str]) -> Result<(), TaskError> {
    let mut command = cargo_command(&["run", "--release", "-p", "tidegate-simulator", "--"]);
    run_command(command.args(options))
}
