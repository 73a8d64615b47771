//! What a connection has said of itself, and remembers from one command to the next.

use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;

use super::reply_writer::RespVersion;
use tidegate_web::Peer;

/// One connection.
#[derive(Debug)]
pub(super) struct RespSession {
    pub(super) id: u64,
    pub(super) caller: Peer,
    pub(super) version: RespVersion,
    /// As `CLIENT SETNAME` says; empty for none.
    pub(super) name: Vec<u8>,
    /// Whether it brought the token.
    pub(super) authenticated: bool,
    /// The numbers that it asked for last: most ask for the same again.
    /// A copy of its own: a shared count of users would be written by all threads for every command.
    pub(super) last_policy: Option<(Quota, Policy)>,
}

impl RespSession {
    pub(super) const fn new(id: u64, caller: Peer) -> Self {
        Self {
            id,
            caller,
            version: RespVersion::Resp2,
            name: Vec::new(),
            authenticated: false,
            last_policy: None,
        }
    }

    /// As after connecting (`RESET`).
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.id, self.caller);
    }
}
