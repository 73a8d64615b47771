//! The peer of a connection, as reported by the kernel. Whether a peer may name another client is
//! decided by the rules' trusted proxies.

use std::fmt;
use std::net::IpAddr;

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A peer with an IP address.
    Ip(IpAddr),
    /// A Unix-socket peer, admitted by the permissions of the socket file. It has no address, and a
    /// placeholder address would be dangerous: rules could match, trust or count it.
    Unix,
}

impl Peer {
    /// The peer's IP address; `None` for a Unix-socket peer.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(ip.to_canonical()),
            Self::Unix => None,
        }
    }

    /// Whether the peer is on this machine.
    #[must_use]
    pub const fn is_local(self) -> bool {
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
