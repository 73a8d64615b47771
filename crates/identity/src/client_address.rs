//! Whose request it is: the peer, or whom a trusted proxy names.
//!
//! A forwarding header is a list to which each proxy adds on the right what it saw itself, so only
//! the right end can be believed, and only as far as those are trusted who wrote it. Of several
//! such headers only the one that the document names is read: an attacker supplies the others.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::HeaderName;
use tidegate_rules::identity::{ForwardingHeader, IpIdentity};

use super::{address, forwarded};
use tidegate_web::Peer;

/// The header that most proxies use.
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedClient {
    /// The client's address, IPv4 inside IPv6 folded to IPv4; none where nobody who is believed has told
    /// it of somebody who came over a unix socket.
    pub ip: Option<IpAddr>,
    /// Whether the peer's headers are believed.
    pub peer_is_trusted: bool,
}

/// The client's address, given the peer's (or what the PROXY protocol said in its place).
#[must_use]
pub fn client_ip(peer: impl Into<Peer>, headers: &HeaderMap, ip: &IpIdentity) -> Option<IpAddr> {
    resolve_client(peer.into(), headers, ip).ip
}

/// Whether a peer's forwarding headers are believed.
pub(super) fn trusts_peer(ip: &IpIdentity, peer: Peer) -> bool {
    match peer {
        Peer::Ip(peer) => ip.trusts(peer),
        Peer::Unix => ip.trusts_unix,
    }
}

/// The same, and whether the peer is trusted.
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

/// The first from the right who is not trusted. What is left of something that is no address could
/// be anyone's, so the last good one counts; if all are trusted, the leftmost.
fn first_untrusted_hop(
    peer: Option<IpAddr>,
    hops: impl Iterator<Item = Option<IpAddr>>,
    trusted: &IpIdentity,
) -> Option<IpAddr> {
    let mut last = peer;
    for hop in hops {
        let Some(hop) = hop else {
            return last;
        };
        last = Some(hop);
        if !trusted.trusts(hop) {
            return last;
        }
    }
    last
}

/// The entries of `X-Forwarded-For` from the right. Several lines are one list, and who looks only
/// at the first or the last line can be fooled.
fn x_forwarded_for_hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
    lines
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(address::parse_hop_address)
}

/// The address in a header that has only one; of two nobody knows which the proxy set.
fn single_header_address(headers: &HeaderMap, name: &str) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { address::parse_hop_address(line.as_bytes()) }
}

#[cfg(test)]
mod tests;
