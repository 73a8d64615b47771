//! The commands by name, with how many arguments each takes.

/// A command.
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
    /// `COMMAND`.
    Command,
    Info,
    Config,
    Reset,
    Quit,
}

/// What is known of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct RespCommandSpec {
    pub(super) command: RespCommand,
    /// In lower case, as Redis lists them.
    pub(super) name: &'static str,
    /// The number of arguments, the name included; the least one where it is negative.
    pub(super) arity: i8,
    /// Whether the first argument is a key.
    pub(super) has_key: bool,
    /// How it is called, for commands that Redis does not have.
    pub(super) usage: Option<&'static str>,
}

/// All commands, those that are asked most often first.
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
    /// The command of a name, in any case.
    pub(super) fn find_by_name(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether it takes so many arguments, the name included.
    pub(super) fn accepts_arity(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= least } else { count == least }
    }
}
