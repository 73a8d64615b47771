//! Why a command did not do what it was asked, and the exit code that says so.

use std::fmt;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use tidegate_rules::problem::Problems;

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Why a command failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The document is not valid.
    Invalid(Problems),
    /// A limit on the command line is not valid.
    Limit(Problems),
    /// The answer is no: somebody looked at it and refused.
    No(String),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// It could not be done: a port, a file, a server.
    CouldNot(String),
}

impl Failure {
    /// The exit code.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Invalid(_) | Self::No(_) => 1,
            Self::Limit(_) | Self::Usage(_) => 2,
            Self::CouldNot(_) => 3,
        }
    }

    /// Why rules cannot be used, for callers without a token: only where the mistakes are.
    pub(crate) fn in_public(&self) -> String {
        match self {
            Self::Invalid(problems) | Self::Limit(problems) => {
                format!("the rules are not valid: {}; the log has the reason", problems.places())
            }
            Self::No(_) | Self::Usage(_) | Self::CouldNot(_) => {
                "the rules cannot be read or used; the log has the reason".to_owned()
            }
        }
    }

    /// Says it on stderr, in colours if that is a terminal.
    pub(crate) fn print(&self) {
        let text = match self {
            Self::Invalid(problems) | Self::Limit(problems) => {
                problems.to_string().replace("error:", &format!("{ERROR}error:{ERROR:#}"))
            }
            Self::No(text) | Self::Usage(text) | Self::CouldNot(text) => {
                format!("{ERROR}error:{ERROR:#} {text}\n")
            }
        };
        // There is nobody left to tell when stderr is gone.
        let _ = anstream::stderr().write_all(text.as_bytes());
    }
}

/// The system said no to something that is not worth words of its own.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::CouldNot(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(problems) | Self::Limit(problems) => problems.fmt(f),
            Self::No(text) | Self::Usage(text) | Self::CouldNot(text) => f.write_str(text),
        }
    }
}
