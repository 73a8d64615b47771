//! Command failures and their exit codes.

use std::fmt;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use tidegate_rules::diagnostic::DocumentError;

const ERROR_STYLE: Style = AnsiColor::Red.on_default().bold();

/// Why a command failed.
#[derive(Clone, Debug)]
pub enum CommandError {
    /// The document is not valid.
    InvalidDocument(DocumentError),
    /// A limit given on the command line is not valid.
    InvalidLimit(DocumentError),
    /// The command ran, and the result is negative: the server refused the change, or a check
    /// failed.
    Rejected(String),
    /// The command line is invalid or contradictory.
    Usage(String),
    /// An operation failed, for example on a port, a file or a server.
    Failed(String),
}

impl CommandError {
    /// The exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::InvalidDocument(_) | Self::Rejected(_) => 1,
            Self::InvalidLimit(_) | Self::Usage(_) => 2,
            Self::Failed(_) => 3,
        }
    }

    /// Describes why rules are unusable, for callers without a token. Names only the locations of
    /// the errors, because the content may be confidential.
    pub(crate) fn public_message(&self) -> String {
        match self {
            Self::InvalidDocument(problems) | Self::InvalidLimit(problems) => {
                format!(
                    "the rules are not valid: {}; see the log for the reason",
                    problems.locations()
                )
            }
            Self::Rejected(_) | Self::Usage(_) | Self::Failed(_) => {
                "the rules cannot be read or used; see the log for the reason".to_owned()
            }
        }
    }

    /// Prints the error on stderr, in color if that is a terminal.
    pub fn print(&self) {
        let text = match self {
            Self::InvalidDocument(problems) | Self::InvalidLimit(problems) => problems
                .to_string()
                .replace("error:", &format!("{ERROR_STYLE}error:{ERROR_STYLE:#}")),
            Self::Rejected(text) | Self::Usage(text) | Self::Failed(text) => {
                format!("{ERROR_STYLE}error:{ERROR_STYLE:#} {text}\n")
            }
        };
        // If stderr is closed there is nowhere left to report to.
        let _ = anstream::stderr().write_all(text.as_bytes());
    }
}

/// For I/O errors whose own text is clear enough.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidDocument(problems) | Self::InvalidLimit(problems) => problems.fmt(f),
            Self::Rejected(text) | Self::Usage(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}
