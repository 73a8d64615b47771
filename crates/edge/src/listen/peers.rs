//! How many connections each address has, so that nobody takes all places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Peer;

/// The addresses with a connection, and how many each has.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    most: usize,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    peers: Peers,
    /// None where there are no addresses to tell callers apart by.
    network: Option<IpAddr>,
}

impl Peers {
    pub(super) fn new(most: usize) -> Self {
        Self { counts: Arc::default(), most }
    }

    /// Counts one more connection; none if the address has as many as it may have.
    pub(super) fn enter(&self, peer: Peer) -> Option<Seat> {
        let Some(network) = peer.ip().map(network) else {
            return Some(Seat { peers: self.clone(), network: None });
        };
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        if *count >= self.most {
            tracing::debug!("closed: as many connections as one address may have");
            return None;
        }
        *count += 1;
        Some(Seat { peers: self.clone(), network: Some(network) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(network) = &self.network else { return };
        let mut counts = self.peers.counts.lock();
        if let Some(count) = counts.get_mut(network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(network);
            }
        }
    }
}

/// An IPv6 client has a whole /64 of addresses to choose from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_places_and_no_more() {
        let peers = Peers::new(2);
        let enter = |text: &str| peers.enter(Peer::Ip(text.parse().unwrap()));
        let (first, _second) = (enter("192.0.2.1"), enter("::ffff:192.0.2.1"));
        assert!(first.is_some());
        assert!(enter("192.0.2.1").is_none(), "the same address in IPv6");
        assert!(enter("192.0.2.2").is_some());
        drop(first);
        assert!(enter("192.0.2.1").is_some(), "a place is free again");
        let unix: Vec<_> = (0..9).map(|_| peers.enter(Peer::Unix)).collect();
        assert!(unix.iter().all(Option::is_some), "a file has no addresses to tell apart");
        let _here = (enter("2001:db8::1"), enter("2001:db8::2"));
        assert!(enter("2001:db8:0:0:ffff::1").is_none(), "the same /64");
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(_here);
        drop(_second);
        assert!(peers.counts.lock().is_empty(), "nobody is remembered who left");
    }
}
