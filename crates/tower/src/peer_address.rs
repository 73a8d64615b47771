//! The address of the connection on which a request arrived.

use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "axum")]
use axum::extract::ConnectInfo;
use http::Extensions;
use tidegate_web::Peer;
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;

/// The other end of the connection, as an extension of the request. It is the client, or a proxy in
/// front of this service.
///
/// - axum: with the feature `axum` of this crate, serve with
///   `app.into_make_service_with_connect_info::<SocketAddr>()`.
/// - tonic: enable the feature `tonic` of this crate.
/// - hyper, and any other server: insert this extension into each request.
///
/// ```
/// use std::net::SocketAddr;
/// use tidegate_tower::PeerAddress;
///
/// # fn accept() -> (SocketAddr, http::Request<()>) {
/// #     (([127, 0, 0, 1], 4321).into(), http::Request::new(()))
/// # }
/// let (address, mut request) = accept();
/// request.extensions_mut().insert(PeerAddress::from(address));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(Peer);

impl PeerAddress {
    /// The peer of a Unix socket, which has no address. Unless a trusted proxy passes the client's
    /// address, rules by `ip` count all such requests together.
    pub const UNIX: Self = Self(Peer::Unix);

    pub(crate) const fn peer(self) -> Peer {
        self.0
    }

    /// Finds the address in a request's extensions.
    pub(crate) fn find(extensions: &Extensions) -> Option<Self> {
        let own = extensions.get::<Self>().copied();
        #[cfg(feature = "axum")]
        let own = own.or_else(|| {
            let info = extensions.get::<ConnectInfo<SocketAddr>>();
            info.map(|info| info.0.into())
        });
        #[cfg(feature = "tonic")]
        let own = own.or_else(|| {
            let info = extensions.get::<TcpConnectInfo>();
            info.and_then(TcpConnectInfo::remote_addr).map(Self::from)
        });
        own
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> Self {
        Self(Peer::Ip(address))
    }
}
