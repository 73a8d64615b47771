//! Asks for confirmation before a change.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::cli::ConfirmArgs;
use tidegate_server::error::CommandError;
use tidegate_server::output;

/// Prints the planned changes to stdout, or to stderr if stdout is for JSON.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn show_changes(text: &str, json: bool) -> Result<(), CommandError> {
    if json {
        return Ok(anstream::stderr().write_all(text.as_bytes())?);
    }
    Ok(output::print_text(text)?)
}

/// Asks whether to continue, unless `--yes` was given.
///
/// # Errors
/// If stdin is not a terminal, or the user declines.
pub(super) fn prompt_to_continue(question: &str, args: &ConfirmArgs) -> Result<(), CommandError> {
    if args.yes {
        return Ok(());
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(CommandError::Usage(format!(
            "{question} Cannot ask, because stdin is not a terminal; nothing was changed\n  \
             write: --yes to confirm"
        )));
    }
    let mut stderr = io::stderr();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandError::Rejected("nothing was changed".to_owned())),
    }
}
