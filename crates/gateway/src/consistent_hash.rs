//! Consistent hashing with bounded load: requests with the same key go to the same server.
//!
//! Every server gets a score for a key, and the highest score wins (rendezvous hashing). A server
//! that leaves changes only the order of the others below it, so only its keys move, and they
//! spread over all others. Scores depend on addresses and weights alone, so all nodes agree. A
//! server above [`LOAD_FACTOR`] of the mean load passes a request on to the next in order.

use tidegate_core::key::{KeyHasher, Secret};
use tidegate_net::connect::OutboundAddress;
use tidegate_rules::identity::IdentityConfig;

/// A server takes at most this part of the mean load of the servers: 5/4.
const LOAD_FACTOR: (u64, u64) = (5, 4);

/// What requests are distributed by, if an upstream hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashInput {
    /// A fact of the request, such as `api_key`.
    Fact(String),
    /// A header of the request, in lower case.
    Header(String),
}

impl HashInput {
    /// Whether requests at the gateway can have the value.
    #[must_use]
    pub fn is_supplied(&self, identity: &IdentityConfig) -> bool {
        let Self::Fact(name) = self else { return true };
        match name.as_str() {
            "ip" | "method" | "path" | "host" => true,
            "api_key" => identity.api_key.is_some(),
            "user_id" => identity.user_id.is_some(),
            "tier" => identity.tier.is_some(),
            name => identity.facts.iter().any(|fact| fact.name == name),
        }
    }
}

/// The servers in the order in which a key prefers them. A server that is overloaded or unhealthy
/// passes its requests on to the next.
#[must_use]
pub fn rank_servers(
    servers: &[(OutboundAddress, u32)],
    key: RoutingKey,
) -> Vec<&(OutboundAddress, u32)> {
    let score = |server: &(OutboundAddress, u32)| {
        key.score(ServerHash::new(&server.0.to_string()), server.1)
    };
    let mut ranked: Vec<_> = servers.iter().collect();
    ranked.sort_by(|a, b| score(b).total_cmp(&score(a)));
    ranked
}

/// The hash of the value that requests are distributed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingKey(u64);

/// The hash of a server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerHash(u64);

impl RoutingKey {
    /// The key for a value.
    #[must_use]
    pub fn new(value: &[u8]) -> Self {
        Self(hash(value))
    }

    /// The score of a server for this key; positive.
    ///
    /// With u uniform in (0, 1), weight / −ln(u) makes a server win in proportion to its weight.
    /// The logarithm may differ in the last bit between platforms, which decides one key in 2^50.
    #[expect(clippy::cast_precision_loss, reason = "the mantissa has as many bits")]
    pub(super) fn score(self, server: ServerHash, weight: u32) -> f64 {
        let uniform = (mix(self.0 ^ server.0) >> 11) as f64;
        let uniform = (uniform + 0.5) / (1_u64 << 53) as f64;
        f64::from(weight) / -uniform.ln()
    }
}

impl ServerHash {
    pub(super) fn new(address: &str) -> Self {
        Self(hash(address.as_bytes()))
    }
}

/// The most requests that a server may have in flight, out of all requests to the servers of one
/// upstream. It is above the mean, so some server always has room.
pub(super) fn max_in_flight(all_requests: u64, weight: u32, all_weights: u64) -> u64 {
    let (more, of) = LOAD_FACTOR;
    (all_requests * u64::from(weight) * more).div_ceil(all_weights.max(1) * of)
}

fn hash(bytes: &[u8]) -> u64 {
    // The same on all nodes, so without the secret of this node.
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(bytes);
    hasher.finish().lo
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The server that each of many keys goes to, by index.
    fn winners(servers: &[(String, u32)], keys: usize) -> Vec<usize> {
        let hashes: Vec<(ServerHash, u32)> =
            servers.iter().map(|(name, weight)| (ServerHash::new(name), *weight)).collect();
        let winner = |key: usize| {
            let key = RoutingKey::new(format!("key-{key}").as_bytes());
            let score = |at: &usize| key.score(hashes[*at].0, hashes[*at].1);
            (0..hashes.len()).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap()
        };
        (0..keys).map(winner).collect()
    }

    fn named(weights: &[u32]) -> Vec<(String, u32)> {
        let name = |(at, weight): (usize, &u32)| (format!("http://10.0.0.{at}:3000"), *weight);
        weights.iter().enumerate().map(name).collect()
    }

    #[test]
    fn keys_spread_in_proportion_to_weights() {
        for weights in [vec![1; 4], vec![1; 16], vec![1, 2, 5]] {
            let keys = 40_000;
            let won = winners(&named(&weights), keys);
            let all: u32 = weights.iter().sum();
            for (at, weight) in weights.iter().enumerate() {
                let count = won.iter().filter(|winner| **winner == at).count() as f64;
                let expected = keys as f64 * f64::from(*weight) / f64::from(all);
                let ratio = count / expected;
                assert!((0.9..1.1).contains(&ratio), "{weights:?} server {at}: {ratio}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        /// Only the keys of a server that leaves move: at most 1.1/n of all.
        #[test]
        fn leaving_server_moves_only_its_keys(servers in 2_usize..12, leaves in 0_usize..12) {
            let (leaves, keys) = (leaves % servers, 20_000);
            let all = named(&vec![1; servers]);
            let mut rest = all.clone();
            rest.remove(leaves);
            let (before, after) = (winners(&all, keys), winners(&rest, keys));
            let mut moved = 0;
            for (before, after) in before.into_iter().zip(after) {
                let same = all[before] == rest[after];
                prop_assert!(same || before == leaves, "a key of another server moved");
                moved += usize::from(!same);
            }
            prop_assert!(moved * servers * 10 <= keys * 11, "{moved} of {keys} moved");
        }

        /// The order in which servers are listed does not matter, so all nodes agree.
        #[test]
        fn order_of_servers_does_not_matter(
            mut weights in prop::collection::vec(1_u32..10, 2..8),
            turn in 0_usize..8,
        ) {
            let listed = named(&weights);
            let mut other = listed.clone();
            let turn = turn % weights.len();
            other.rotate_left(turn);
            weights.rotate_left(turn);
            let (one, two) = (winners(&listed, 500), winners(&other, 500));
            for (one, two) in one.into_iter().zip(two) {
                prop_assert_eq!(&listed[one], &other[two]);
            }
        }

        /// Some server always has room below the load cap.
        #[test]
        fn some_server_is_below_load_cap(
            servers in prop::collection::vec((0_u64..50, 1_u32..10), 1..10),
        ) {
            let load = servers.iter().map(|(in_flight, _)| in_flight).sum::<u64>() + 1;
            let weights = servers.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let has_room = |(in_flight, weight): &(u64, u32)| {
                in_flight < &max_in_flight(load, *weight, weights)
            };
            prop_assert!(servers.iter().any(has_room));
        }
    }
}
