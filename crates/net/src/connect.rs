//! Outbound connections: server addresses, trusted certificate authorities, and dialling.

mod outbound_address;
mod outbound_tls;

use std::io;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

pub use outbound_address::{OutboundAddress, OutboundAddressError, OutboundProtocol};
pub use outbound_tls::{OutboundTls, OutboundTlsError};

use crate::coalesce_writes::CoalesceWrites;

/// The byte stream of an outbound connection, plain or TLS.
pub type OutboundIo = TokioIo<CoalesceWrites<Either<TcpStream, Box<TlsStream<TcpStream>>>>>;

/// Connects, including the TLS handshake. The flag says whether the connection uses HTTP/2.
pub async fn connect(
    address: &OutboundAddress,
    trust: &OutboundTls,
) -> io::Result<(OutboundIo, bool)> {
    let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
    tcp.set_nodelay(true)?;
    let (io, http2) = match address.protocol {
        OutboundProtocol::Http => (Either::Left(tcp), false),
        OutboundProtocol::Http2 => (Either::Left(tcp), true),
        OutboundProtocol::Https => {
            let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
            let tls = trust.connector().connect(name, tcp).await?;
            let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            (Either::Right(Box::new(tls)), http2)
        }
    };
    Ok((TokioIo::new(CoalesceWrites(io)), http2))
}
