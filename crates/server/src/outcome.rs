/// Result of a command that ran to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command succeeded.
    Success,
    /// The result is negative: refused or invalid.
    Rejected,
}

impl From<bool> for CommandOutcome {
    fn from(success: bool) -> Self {
        if success { Self::Success } else { Self::Rejected }
    }
}
