//! Reserves a loopback port for the duration of a test.
//!
//! The usual way (bind port 0, close, pass on the number) races with all other tests. Here the
//! socket stays bound and never listens. With `SO_REUSEADDR` on both sockets, a server can still
//! bind and listen on the same port, but the kernel gives it neither to another bind of port 0 nor
//! to an outgoing connection. It stays reserved between a server's death and its restart, and
//! connecting is refused meanwhile.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A port on 127.0.0.1, reserved until this is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves a free port.
    ///
    /// # Panics
    /// If the machine has none.
    #[must_use]
    pub fn reserve() -> Self {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("SO_REUSEADDR");
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = getsockname(&socket).expect("the address that was bound");
        let address = SocketAddr::try_from(address).expect("an IP address");
        Self { address, _socket: socket }
    }

    /// The port number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.address.port()
    }

    /// The socket address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
