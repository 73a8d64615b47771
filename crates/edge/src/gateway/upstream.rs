//! Several servers that answer the same requests, and which of them gets the next.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::server::Server;

/// Which server gets the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests under way, relative to its weight.
    #[default]
    LeastLoaded,
    /// In turn, each as often as its weight says.
    Weighted,
}

/// Servers that answer the same requests.
pub(super) struct Upstream {
    pub(super) servers: Vec<Arc<Server>>,
    balance: Balance,
    turn: AtomicUsize,
    weights: usize,
}

impl Upstream {
    pub(super) fn new(servers: Vec<Arc<Server>>, balance: Balance) -> Self {
        let weights = servers.iter().map(|server| server.weight as usize).sum::<usize>().max(1);
        Self { servers, balance, turn: AtomicUsize::new(0), weights }
    }

    /// The server for a request, other than those that were tried. Servers that are not well come
    /// last: where none is, one of them is still better than no answer.
    pub(super) fn choose(&self, tried: &[&Arc<Server>]) -> Option<&Arc<Server>> {
        if let [only] = self.servers.as_slice() {
            return tried.is_empty().then_some(only);
        }
        let left = |server: &&Arc<Server>| !tried.iter().any(|tried| Arc::ptr_eq(tried, server));
        let left: SmallVec<[&Arc<Server>; 8]> = self.servers.iter().filter(left).collect();
        let well: SmallVec<[&Arc<Server>; 8]> =
            left.iter().copied().filter(|server| server.is_well()).collect();
        let from = if well.is_empty() { left } else { well };
        match self.balance {
            Balance::LeastLoaded => self.least_loaded(&from),
            Balance::Weighted => self.in_turn(&from),
        }
    }

    /// Of equals the one whose turn it is, so that idle servers share too.
    fn least_loaded<'u>(&self, from: &[&'u Arc<Server>]) -> Option<&'u Arc<Server>> {
        let start = self.turn.fetch_add(1, Relaxed);
        let in_order = (0..from.len()).map(|i| from[(start.wrapping_add(i)) % from.len()]);
        // Loads are compared as fractions: a/v < b/w where a·w < b·v.
        in_order.reduce(|best, next| {
            let load = |server: &Server| server.in_flight() as u64 + 1;
            let (a, b) = (load(best), load(next));
            match a * u64::from(next.weight) <= b * u64::from(best.weight) {
                true => best,
                false => next,
            }
        })
    }

    fn in_turn<'u>(&self, from: &[&'u Arc<Server>]) -> Option<&'u Arc<Server>> {
        let total: usize = from.iter().map(|server| server.weight as usize).sum();
        // A step that shares no divisor with most totals spreads the turns of a heavy server.
        let mut at =
            self.turn.fetch_add(1, Relaxed).wrapping_mul(step(self.weights)) % total.max(1);
        for server in from {
            let weight = server.weight as usize;
            if at < weight {
                return Some(server);
            }
            at -= weight;
        }
        from.first().copied()
    }
}

/// The number next to the golden section of `total` that shares no divisor with it: multiples of it
/// visit every place once, and neighbours far apart.
fn step(total: usize) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (total * 618 / 1000).max(1);
    (golden..=total).find(|step| divisor(*step, total) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::server::Timeouts;
    use crate::gateway::trust::Trust;

    fn upstream(weights: &[u32], balance: Balance) -> Upstream {
        let trust = Trust::nobody().unwrap();
        let server = |(i, weight): (usize, &u32)| {
            let address = format!("http://127.0.0.1:{}", i + 1).parse().unwrap();
            Arc::new(Server::new(address, *weight, Timeouts::default(), trust.clone(), 1))
        };
        Upstream::new(weights.iter().enumerate().map(server).collect(), balance)
    }

    fn port(server: Option<&Arc<Server>>) -> u16 {
        server.map_or(0, |server| server.address.port)
    }

    #[test]
    fn turns_are_taken_by_weight_and_spread() {
        let upstream = upstream(&[5, 1, 2], Balance::Weighted);
        let turns: Vec<u16> = (0..16).map(|_| port(upstream.choose(&[]))).collect();
        for (server, expected) in [(1, 10), (2, 2), (3, 4)] {
            assert_eq!(turns.iter().filter(|turn| **turn == server).count(), expected, "{turns:?}");
        }
        assert!(!turns.windows(4).any(|four| four == [1; 4]), "{turns:?}");
    }

    #[test]
    fn the_least_loaded_gets_the_next() {
        let upstream = upstream(&[1, 1, 2], Balance::LeastLoaded);
        let mut under_way = Vec::new();
        let mut counts = [0; 4];
        for _ in 0..12 {
            let server = upstream.choose(&[]).unwrap();
            counts[usize::from(server.address.port)] += 1;
            under_way.push(server.occupy());
        }
        assert_eq!(counts, [0, 3, 3, 6]);
        under_way.retain(|busy| busy.server().address.port != 2);
        for _ in 0..3 {
            let server = upstream.choose(&[]).unwrap();
            assert_eq!(server.address.port, 2);
            under_way.push(server.occupy());
        }
    }

    #[test]
    fn the_unwell_and_the_tried_come_last() {
        for balance in [Balance::LeastLoaded, Balance::Weighted] {
            let upstream = upstream(&[1, 1], balance);
            assert!(upstream.servers[0].set_well(false), "that is news");
            assert!(!upstream.servers[0].set_well(false), "that is none");
            assert_eq!(port(upstream.choose(&[])), 2);
            let (first, second) = (&upstream.servers[0], &upstream.servers[1]);
            assert_eq!(port(upstream.choose(&[second])), 1, "better than none");
            assert_eq!(port(upstream.choose(&[second, first])), 0);
            upstream.servers[1].set_well(false);
            assert_ne!(port(upstream.choose(&[])), 0, "all are unwell");
        }
    }
}
