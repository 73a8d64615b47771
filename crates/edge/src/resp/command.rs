//! The commands by name, with how many arguments each takes.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
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
    Table,
    Info,
    Config,
    Reset,
    Quit,
}

/// What is known of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) command: Command,
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
pub(super) const ALL: [Entry; 16] = [
    Entry {
        usage: Some("CL.THROTTLE key max_burst count_per_period period [quantity]"),
        has_key: true,
        ..plain(Command::ClThrottle, "cl.throttle", -5)
    },
    Entry {
        usage: Some("THROTTLE key max_burst count_per_period period [quantity]"),
        has_key: true,
        ..plain(Command::Throttle, "throttle", -5)
    },
    Entry {
        usage: Some("TIDEGATE.CHECK fact value [fact value ...] [COST n]"),
        ..plain(Command::Check, "tidegate.check", -3)
    },
    Entry {
        usage: Some("TIDEGATE.PEEK fact value [fact value ...] [COST n] [RULE id]"),
        ..plain(Command::Peek, "tidegate.peek", -3)
    },
    Entry {
        usage: Some("TIDEGATE.RESET fact value [fact value ...] [RULE id]"),
        ..plain(Command::ResetCounters, "tidegate.reset", -3)
    },
    plain(Command::Ping, "ping", -1),
    plain(Command::Echo, "echo", 2),
    plain(Command::Hello, "hello", -1),
    plain(Command::Auth, "auth", -2),
    plain(Command::Select, "select", 2),
    plain(Command::Client, "client", -2),
    plain(Command::Table, "command", -1),
    plain(Command::Info, "info", -1),
    plain(Command::Config, "config", -2),
    plain(Command::Reset, "reset", 1),
    plain(Command::Quit, "quit", -1),
];

const fn plain(command: Command, name: &'static str, arity: i8) -> Entry {
    Entry { command, name, arity, has_key: false, usage: None }
}

impl Entry {
    /// The command of a name, in any case.
    pub(super) fn named(name: &[u8]) -> Option<&'static Self> {
        ALL.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether it takes so many arguments, the name included.
    pub(super) fn takes(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= least } else { count == least }
    }
}
