//! Resolves the client's address: the peer's own, or the one that a trusted proxy reports.
//!
//! A forwarding header is a list to which each proxy appends the address it saw. So the right end
//! is reliable, as far as the proxies that wrote it are trusted. Of several forwarding headers,
//! only the configured one is read: a client can forge the others.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::HeaderName;
use tidegate_rules::identity::{ForwardingHeader, IpIdentity};

use super::trusted_proxies::{first_untrusted_hop, trusts_peer};
use super::{address, forwarded};
use tidegate_web::Peer;

/// The forwarding header that most proxies use.
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address, and whether the peer is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedClient {
    /// The client's address; an IPv4-mapped IPv6 address is converted to IPv4. `None` for a
    /// Unix-socket peer when no trusted proxy supplied an address.
    pub ip: Option<IpAddr>,
    /// Whether the peer's forwarding headers are trusted.
    pub peer_is_trusted: bool,
}

/// Returns the client's address. `peer` is the other end of the connection, or the address that the
/// PROXY protocol reports.
#[must_use]
pub fn client_ip(peer: impl Into<Peer>, headers: &HeaderMap, ip: &IpIdentity) -> Option<IpAddr> {
    resolve_client(peer.into(), headers, ip).ip
}

/// Like [`client_ip`], and also reports whether the peer is trusted.
pub(super) fn resolve_client(peer: Peer, headers: &HeaderMap, ip: &IpIdentity) -> ResolvedClient {
    let (at, peer_is_trusted) = (peer.ip(), trusts_peer(ip, peer));
    if !peer_is_trusted {
        return ResolvedClient { ip: at, peer_is_trusted };
    }
    let client = match &ip.forwarding_header {
        ForwardingHeader::XForwardedFor => {
            first_untrusted_hop(at, x_forwarded_for_hops(headers), ip)
        }
        ForwardingHeader::Forwarded => {
            first_untrusted_hop(at, forwarded::forwarded_hops(headers), ip)
        }
        ForwardingHeader::Header(name) => single_header_address(headers, name).or(at),
    };
    ResolvedClient { ip: client, peer_is_trusted }
}

/// The entries of `X-Forwarded-For` from the right. Several header lines form one list: a parser
/// that reads only the first or the last line can be fooled.
fn x_forwarded_for_hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
    lines
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(address::parse_hop_address)
}

/// The address in a header that carries a single one. With two lines it is unknown which one the
/// proxy set, so both are ignored.
fn single_header_address(headers: &HeaderMap, name: &str) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { address::parse_hop_address(line.as_bytes()) }
}

#[cfg(test)]
mod tests;
