//! Walks the addresses that proxies report, from the nearest one to the first that is not trusted.

use std::net::IpAddr;

use tidegate_rules::identity::IpIdentity;
use tidegate_web::Peer;

/// Whether forwarding headers from this peer are trusted.
pub(super) fn trusts_peer(ip: &IpIdentity, peer: Peer) -> bool {
    match peer {
        Peer::Ip(peer) => ip.trusts(peer),
        Peer::Unix => ip.trusts_unix,
    }
}

/// Returns the first untrusted address from the right, or the leftmost if all are trusted. A
/// malformed entry ends the search with the last valid address, because anyone could have written
/// the entries to its left.
pub(super) fn first_untrusted_hop(
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
