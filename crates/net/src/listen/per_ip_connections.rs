//! Limits connections per address, so that one client cannot take all of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use tidegate_web::Peer;

/// Number of open connections per address.
#[derive(Clone, Debug)]
pub(crate) struct PerIpConnections {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    max_per_ip: usize,
}

/// Counts one connection until dropped.
#[derive(Debug)]
pub(super) struct PerIpPermit {
    connections: PerIpConnections,
    /// `None` for Unix-socket peers, which have no address and no limit.
    network: Option<IpAddr>,
}

impl PerIpConnections {
    pub(super) fn new(max_per_ip: usize) -> Self {
        Self { counts: Arc::default(), max_per_ip }
    }

    /// Counts one more connection; `None` if the address is at its limit.
    pub(super) fn try_acquire(&self, peer: Peer) -> Option<PerIpPermit> {
        let Some(network) = peer.ip().map(network_prefix) else {
            return Some(PerIpPermit { connections: self.clone(), network: None });
        };
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        if *count >= self.max_per_ip {
            tracing::debug!("connection closed: per-address connection limit reached");
            return None;
        }
        *count += 1;
        Some(PerIpPermit { connections: self.clone(), network: Some(network) })
    }
}

impl Drop for PerIpPermit {
    fn drop(&mut self) {
        let Some(network) = &self.network else { return };
        let mut counts = self.connections.counts.lock();
        if let Some(count) = counts.get_mut(network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(network);
            }
        }
    }
}

/// The unit of counting: an IPv4 address or an IPv6 /64, since a client may use a whole /64.
fn network_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_per_address_are_limited() {
        let peers = PerIpConnections::new(2);
        let connect = |text: &str| peers.try_acquire(Peer::Ip(text.parse().unwrap()));
        let (first, _second) = (connect("192.0.2.1"), connect("::ffff:192.0.2.1"));
        assert!(first.is_some());
        assert!(connect("192.0.2.1").is_none(), "an IPv4-mapped address counts as the same");
        assert!(connect("192.0.2.2").is_some());
        drop(first);
        assert!(connect("192.0.2.1").is_some(), "the closed connection no longer counts");
        let unix: Vec<_> = (0..9).map(|_| peers.try_acquire(Peer::Unix)).collect();
        assert!(unix.iter().all(Option::is_some), "Unix-socket peers are not limited");
        let _same_prefix = (connect("2001:db8::1"), connect("2001:db8::2"));
        assert!(connect("2001:db8:0:0:ffff::1").is_none(), "the same /64");
        assert!(connect("2001:db8:0:1::1").is_some());
        drop(_same_prefix);
        drop(_second);
        assert!(peers.counts.lock().is_empty(), "addresses without connections are removed");
    }
}
