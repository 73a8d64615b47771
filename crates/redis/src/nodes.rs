//! How nodes tell each other that they live: a heartbeat in the store.

use std::time::Duration;

use redis::{Cmd, cmd};

use crate::script::NODES;

/// How often a node says that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long a silent one counts; whoever asks must say the same, or forgets those who live.
const LIFETIME: Duration = Duration::from_secs(5);

/// The key that nodes are kept under.
pub(crate) fn key(prefix: &str) -> String {
    format!("{prefix}nodes")
}

/// Says that a node stays or leaves, and asks how many there are.
pub(crate) fn command(prefix: &str, id: &str, stays: bool) -> Cmd {
    let lifetime = u64::try_from(LIFETIME.as_micros()).unwrap_or(u64::MAX);
    let mut command = cmd("EVAL");
    command.arg(NODES).arg(1).arg(key(prefix)).arg(id).arg(lifetime).arg(u8::from(stays));
    command
}
