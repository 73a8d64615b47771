//! Asking before something is changed.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::cli::ConfirmArgs;
use tidegate_server::error::CommandError;
use tidegate_server::output;

/// Shows what would change: on stdout, or beside an answer in JSON on stderr.
///
/// # Errors
/// When nobody reads.
pub(super) fn show_changes(text: &str, json: bool) -> Result<(), CommandError> {
    if json {
        return Ok(anstream::stderr().write_all(text.as_bytes())?);
    }
    Ok(output::print_text(text)?)
}

/// Asks whether to go on, unless that was said already.
///
/// # Errors
/// When nobody is there to be asked, or the answer is no.
pub(super) fn prompt_to_continue(question: &str, args: &ConfirmArgs) -> Result<(), CommandError> {
    if args.yes {
        return Ok(());
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(CommandError::Usage(format!(
            "{question} Nobody can be asked, because stdin is no terminal; nothing was changed\n  \
             write: --yes, if that is what you want"
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
