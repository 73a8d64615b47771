//! State of a connection that lasts from one command to the next.

use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;

use super::reply_writer::RespVersion;
use tidegate_web::Peer;

/// State of one connection.
#[derive(Debug)]
pub(super) struct RespSession {
    pub(super) id: u64,
    pub(super) caller: Peer,
    pub(super) version: RespVersion,
    /// Name set by `CLIENT SETNAME`; empty if none.
    pub(super) name: Vec<u8>,
    /// Whether the client sent the token.
    pub(super) authenticated: bool,
    /// Limit of the last throttle command, because most clients send the same limit again. Stored
    /// by value: with an `Arc`, all threads would contend for its reference count.
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

    /// Restores the state after connecting, for `RESET`.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.id, self.caller);
    }
}
