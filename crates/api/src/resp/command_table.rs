//! Table of the commands: name, arity and usage.

/// The supported commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RespCommand {
    ClThrottle,
    Throttle,
    Check,
    Peek,
    ResetCounters,
    Ping,
    Echo,
    Hello,
    Auth,
    Select,
    Client,
    /// The command `COMMAND`, which lists the commands.
    Command,
    Info,
    Config,
    Reset,
    Quit,
}

/// Entry of the command table.
#[derive(Clone, Copy, Debug)]
pub(super) struct RespCommandSpec {
    pub(super) command: RespCommand,
    /// Name in lower case, as Redis lists it.
    pub(super) name: &'static str,
    /// Number of arguments including the name; if negative, the minimum.
    pub(super) arity: i8,
    /// Whether the first argument is a key.
    pub(super) has_key: bool,
    /// Syntax, for commands that Redis does not have.
    pub(super) usage: Option<&'static str>,
}

/// All commands, the most frequent first.
pub(super) const COMMANDS: [RespCommandSpec; 16] = [
    RespCommandSpec {
        usage: Some("CL.THROTTLE key max_burst count_per_period period [quantity]"),
        has_key: true,
        ..command_spec(RespCommand::ClThrottle, "cl.throttle", -5)
    },
    RespCommandSpec {
        usage: Some("THROTTLE key max_burst count_per_period period [quantity]"),
        has_key: true,
        ..command_spec(RespCommand::Throttle, "throttle", -5)
    },
    RespCommandSpec {
        usage: Some("TIDEGATE.CHECK fact value [fact value ...] [COST n]"),
        ..command_spec(RespCommand::Check, "tidegate.check", -3)
    },
    RespCommandSpec {
        usage: Some("TIDEGATE.PEEK fact value [fact value ...] [COST n] [RULE id]"),
        ..command_spec(RespCommand::Peek, "tidegate.peek", -3)
    },
    RespCommandSpec {
        usage: Some("TIDEGATE.RESET fact value [fact value ...] [RULE id]"),
        ..command_spec(RespCommand::ResetCounters, "tidegate.reset", -3)
    },
    command_spec(RespCommand::Ping, "ping", -1),
    command_spec(RespCommand::Echo, "echo", 2),
    command_spec(RespCommand::Hello, "hello", -1),
    command_spec(RespCommand::Auth, "auth", -2),
    command_spec(RespCommand::Select, "select", 2),
    command_spec(RespCommand::Client, "client", -2),
    command_spec(RespCommand::Command, "command", -1),
    command_spec(RespCommand::Info, "info", -1),
    command_spec(RespCommand::Config, "config", -2),
    command_spec(RespCommand::Reset, "reset", 1),
    command_spec(RespCommand::Quit, "quit", -1),
];

const fn command_spec(command: RespCommand, name: &'static str, arity: i8) -> RespCommandSpec {
    RespCommandSpec { command, name, arity, has_key: false, usage: None }
}

impl RespCommandSpec {
    /// Finds a command by name, ignoring case.
    pub(super) fn find_by_name(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns whether the command accepts `count` arguments, including the name.
    pub(super) fn accepts_arity(&self, count: usize) -> bool {
        let min = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= min } else { count == min }
    }
}
