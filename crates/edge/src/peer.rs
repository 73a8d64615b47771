//! Who is at the other end of a connection, as the system tells it. Whether they are believed about others
//! is for the rules to say.

use std::fmt;
use std::net::IpAddr;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody at an address.
    Ip(IpAddr),
    /// Somebody on this machine whom the permissions of a socket's file let in. There is no address, and
    /// none is made up: a made-up one could be matched, trusted or counted.
    Unix,
}

impl Peer {
    /// Their address, if they have one.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(ip.to_canonical()),
            Self::Unix => None,
        }
    }

    /// Whether they are on this machine.
    #[must_use]
    pub const fn is_here(self) -> bool {
        match self {
            Self::Ip(ip) => ip.to_canonical().is_loopback(),
            Self::Unix => true,
        }
    }
}

impl From<IpAddr> for Peer {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}
