//! A loopback port that nobody else gets while a test runs.
//!
//! The usual way (bind port 0, close, hand the number on) races with every other test. Here the
//! socket stays bound and never listens: with `SO_REUSEADDR` on both, a server may still bind and
//! listen beside it, and neither another bind to port 0 nor an outgoing connection is given the port.
//! It stays ours between a server's death and its restart, and connecting is refused meanwhile.

#![expect(clippy::expect_used, reason = "a test that gets no port cannot go on")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A port of 127.0.0.1, kept until this is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Takes a free one.
    ///
    /// # Panics
    /// When the machine has none.
    #[must_use]
    pub fn reserve() -> Self {
        let kept = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a socket");
        sockopt::set_socket_reuseaddr(&kept, true).expect("SO_REUSEADDR");
        bind(&kept, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = getsockname(&kept).expect("the address that was bound");
        let address = SocketAddr::try_from(address).expect("an address of the internet family");
        Self { address, _socket: kept }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.address.port()
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
