//! A group of interchangeable servers, and the selection of the one for the next request.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::consistent_hash::{HashInput, RoutingKey, max_in_flight};
use super::upstream_server::UpstreamServer;

/// The load-balancing policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The server with the fewest requests in flight, relative to its weight.
    #[default]
    LeastLoaded,
    /// Weighted round-robin.
    Weighted,
    /// The same server for the same value of a fact or header. Requests without the value go to the
    /// least loaded server.
    Hash(HashInput),
}

/// A group of servers that serve the same requests.
pub(super) struct Upstream {
    pub(super) servers: Vec<Arc<UpstreamServer>>,
    balance: Balance,
    next_turn: AtomicUsize,
}

impl Upstream {
    pub(super) fn new(servers: Vec<Arc<UpstreamServer>>, balance: Balance) -> Self {
        Self { servers, balance, next_turn: AtomicUsize::new(0) }
    }

    /// What requests are distributed by, if they are hashed.
    pub(super) const fn hash_input(&self) -> Option<&HashInput> {
        match &self.balance {
            Balance::Hash(input) => Some(input),
            Balance::LeastLoaded | Balance::Weighted => None,
        }
    }

    /// Selects a server that has not been tried. Unhealthy servers are selected only if no healthy
    /// one is left: an attempt is better than a certain failure.
    pub(super) fn select_server(
        &self,
        tried: &[&Arc<UpstreamServer>],
        key: Option<RoutingKey>,
    ) -> Option<&Arc<UpstreamServer>> {
        if let [only] = self.servers.as_slice() {
            return tried.is_empty().then_some(only);
        }
        let left =
            |server: &&Arc<UpstreamServer>| !tried.iter().any(|tried| Arc::ptr_eq(tried, server));
        let left: SmallVec<[&Arc<UpstreamServer>; 8]> = self.servers.iter().filter(left).collect();
        let healthy: SmallVec<[&Arc<UpstreamServer>; 8]> =
            left.iter().copied().filter(|server| server.is_healthy()).collect();
        let from = if healthy.is_empty() { left } else { healthy };
        match (&self.balance, key) {
            (Balance::Weighted, _) => self.weighted_round_robin(&from),
            (Balance::Hash(_), Some(key)) => {
                hashed(&from, key).or_else(|| self.least_loaded(&from))
            }
            (Balance::LeastLoaded | Balance::Hash(_), _) => self.least_loaded(&from),
        }
    }

    /// Of equally loaded servers, picks the one whose turn it is, so that idle servers also share
    /// the load.
    fn least_loaded<'u>(
        &self,
        from: &[&'u Arc<UpstreamServer>],
    ) -> Option<&'u Arc<UpstreamServer>> {
        let start = self.next_turn.fetch_add(1, Relaxed);
        let in_order = (0..from.len()).map(|i| from[(start.wrapping_add(i)) % from.len()]);
        // Compares loads as fractions: a/v < b/w if a·w < b·v.
        in_order.reduce(|best, next| {
            let load = |server: &UpstreamServer| server.in_flight() as u64 + 1;
            let (a, b) = (load(best), load(next));
            match a * u64::from(next.weight) <= b * u64::from(best.weight) {
                true => best,
                false => next,
            }
        })
    }

    fn weighted_round_robin<'u>(
        &self,
        from: &[&'u Arc<UpstreamServer>],
    ) -> Option<&'u Arc<UpstreamServer>> {
        let total: usize = from.iter().map(|server| server.weight as usize).sum();
        // The step shares no divisor with the total weight of these servers, which interleaves the
        // turns of a heavy server.
        let turn = self.next_turn.fetch_add(1, Relaxed) % total.max(1);
        let mut at = turn * coprime_step(total) % total.max(1);
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

/// The server with the highest score for a key, of those that have room.
fn hashed<'u>(
    from: &[&'u Arc<UpstreamServer>],
    key: RoutingKey,
) -> Option<&'u Arc<UpstreamServer>> {
    let weights = from.iter().map(|server| u64::from(server.weight)).sum();
    let load = from.iter().map(|server| server.in_flight() as u64).sum::<u64>() + 1;
    let has_room = |server: &&&Arc<UpstreamServer>| {
        (server.in_flight() as u64) < max_in_flight(load, server.weight, weights)
    };
    let score = |server: &UpstreamServer| key.score(server.hash(), server.weight);
    from.iter().filter(has_room).max_by(|a, b| score(a).total_cmp(&score(b))).copied()
}

/// The first number from the golden section of `total` upwards that is coprime to it. Its multiples
/// modulo `total` visit every position once, with consecutive ones far apart.
fn coprime_step(total: usize) -> usize {
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
    use crate::upstream_server::UpstreamTimeouts;
    use tidegate_net::connect::OutboundTls;

    fn upstream(weights: &[u32], balance: Balance) -> Upstream {
        let tls = OutboundTls::without_roots().unwrap();
        let server = |(i, weight): (usize, &u32)| {
            let address = format!("http://127.0.0.1:{}", i + 1).parse().unwrap();
            Arc::new(UpstreamServer::new(
                address,
                *weight,
                UpstreamTimeouts::default(),
                tls.clone(),
                1,
            ))
        };
        Upstream::new(weights.iter().enumerate().map(server).collect(), balance)
    }

    fn port(server: Option<&Arc<UpstreamServer>>) -> u16 {
        server.map_or(0, |server| server.address.port)
    }

    #[test]
    fn weighted_turns_are_interleaved() {
        let upstream = upstream(&[5, 1, 2], Balance::Weighted);
        let turns: Vec<u16> = (0..16).map(|_| port(upstream.select_server(&[], None))).collect();
        for (server, expected) in [(1, 10), (2, 2), (3, 4)] {
            assert_eq!(turns.iter().filter(|turn| **turn == server).count(), expected, "{turns:?}");
        }
        assert!(!turns.windows(4).any(|four| four == [1; 4]), "{turns:?}");
    }

    /// Regression test: with one of four servers down, the first one got every request.
    #[test]
    fn weighted_turns_skip_unhealthy_servers_evenly() {
        let upstream = upstream(&[1, 1, 1, 1], Balance::Weighted);
        upstream.servers[3].set_healthy(false);
        let turns: Vec<u16> = (0..9).map(|_| port(upstream.select_server(&[], None))).collect();
        for server in 1..=3 {
            assert_eq!(turns.iter().filter(|turn| **turn == server).count(), 3, "{turns:?}");
        }
    }

    #[test]
    fn least_loaded_server_is_selected() {
        let upstream = upstream(&[1, 1, 2], Balance::LeastLoaded);
        let mut in_flight = Vec::new();
        let mut counts = [0; 4];
        for _ in 0..12 {
            let server = upstream.select_server(&[], None).unwrap();
            counts[usize::from(server.address.port)] += 1;
            in_flight.push(server.start_request());
        }
        assert_eq!(counts, [0, 3, 3, 6]);
        in_flight.retain(|guard| guard.server().address.port != 2);
        for _ in 0..3 {
            let server = upstream.select_server(&[], None).unwrap();
            assert_eq!(server.address.port, 2);
            in_flight.push(server.start_request());
        }
    }

    #[test]
    fn unhealthy_and_tried_servers_come_last() {
        for balance in [Balance::LeastLoaded, Balance::Weighted, hash_by_ip()] {
            let upstream = upstream(&[1, 1], balance);
            assert!(upstream.servers[0].set_healthy(false), "the state changed");
            assert!(!upstream.servers[0].set_healthy(false), "the state did not change");
            assert_eq!(port(upstream.select_server(&[], None)), 2);
            let (first, second) = (&upstream.servers[0], &upstream.servers[1]);
            assert_eq!(port(upstream.select_server(&[second], None)), 1, "the only server left");
            assert_eq!(port(upstream.select_server(&[second, first], None)), 0);
            upstream.servers[1].set_healthy(false);
            assert_ne!(port(upstream.select_server(&[], None)), 0, "all servers are unhealthy");
        }
    }

    fn hash_by_ip() -> Balance {
        Balance::Hash(HashInput::Fact("ip".to_owned()))
    }

    fn key(number: usize) -> Option<RoutingKey> {
        Some(RoutingKey::new(number.to_string().as_bytes()))
    }

    #[test]
    fn same_key_goes_to_same_server() {
        let upstream = upstream(&[1, 1, 1], hash_by_ip());
        let selected = |number| port(upstream.select_server(&[], key(number)));
        let first: Vec<u16> = (0..60).map(selected).collect();
        assert_eq!(first, (0..60).map(selected).collect::<Vec<_>>());
        assert!((1..=3).all(|server| first.contains(&server)), "{first:?}");
        upstream.servers[0].set_healthy(false);
        for (number, before) in first.into_iter().enumerate() {
            let now = selected(number);
            assert!(now == before || (before == 1 && now != 1), "{before} became {now}");
        }
    }

    #[test]
    fn overloaded_server_passes_requests_on() {
        let upstream = upstream(&[1, 1, 1, 1], hash_by_ip());
        let mut in_flight = Vec::new();
        let mut counts = [0_u64; 5];
        for total in 1_u64..=400 {
            let server = upstream.select_server(&[], key(7)).unwrap();
            counts[usize::from(server.address.port)] += 1;
            in_flight.push(server.start_request());
            let most = *counts.iter().max().unwrap();
            assert!(most <= (total * 5).div_ceil(16), "{most} of {total} on one server");
        }
        let mut used = counts[1..].to_vec();
        used.sort_unstable();
        // Three servers at the cap of 1.25 times the mean; the rest goes to the last in order.
        assert_eq!(used, [25, 125, 125, 125]);
    }

    #[test]
    fn request_without_key_goes_to_least_loaded_server() {
        let upstream = upstream(&[1, 1], hash_by_ip());
        let busy = upstream.servers[0].start_request();
        assert!((0..4).all(|_| port(upstream.select_server(&[], None)) == 2));
        drop(busy);
    }
}
