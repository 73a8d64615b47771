//! Random quotas: common round numbers, awkward ones, the smallest and the largest.

use proptest::prelude::*;
use tidegate_core::policy::{Algorithm, LeakMode, MAX_LOG_REQUESTS, Policy};
use tidegate_core::quota::{Quota, Ticks, Units};
use tidegate_core::time::Micros;

/// The five rate algorithms, with both modes of the leaky bucket.
pub const RATE_ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::LeakyBucket(LeakMode::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

/// All rate algorithms, plus concurrency slots.
pub const ALL_ALGORITHMS: [Algorithm; 7] = {
    let [a, b, c, d, e, f] = RATE_ALGORITHMS;
    [a, b, c, d, e, f, Algorithm::Concurrent]
};

const WINDOWS_US: [u64; 16] = [
    1_000_000,
    1,
    2,
    3,
    7,
    10,
    64,
    999,
    1_000,
    1_000_003,
    10_000_000,
    60_000_000,
    3_600_000_000,
    86_400_000_000,
    2_592_000_000_000,
    31_536_000_000_000,
];

const REQUESTS: [u64; 16] =
    [1, 2, 3, 4, 5, 7, 10, 13, 97, 100, 285, 1_000, 6_000, 65_537, 999_983, 1_000_000];

/// Policies whose units are exact, so that core's results must equal the definition.
pub fn exact_policies(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    numbers().prop_map(move |numbers| nearest_valid(algorithm, numbers, is_exact))
}

/// Arbitrary policies, exact or coarsened.
pub fn any_policies(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    numbers().prop_map(move |numbers| nearest_valid(algorithm, numbers, |_| true))
}

/// Policies whose units are coarsened to stay below 2^53.
pub fn coarse_policies(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    let requests = prop_oneof![300_u64..2_000_000, 1_000_000_u64..4_000_000_000];
    let window = 3_600_000_000_u64..=31_536_000_000_000;
    let burst = proptest::option::of(prop_oneof![1_u64..1_000, 1_000_u64..10_000_000_000]);
    (requests, window, burst).prop_filter_map("not coarse", move |(requests, window, burst)| {
        let burst = burst.filter(|_| algorithm.is_bucket());
        let quota = Quota { requests, window: Micros::new(window), burst };
        Policy::new(algorithm, quota).ok().filter(|policy| !is_exact(policy))
    })
}

/// Whether a policy's units are exact.
#[must_use]
pub fn is_exact(policy: &Policy) -> bool {
    let quota = policy.quota();
    if policy.algorithm().is_bucket() {
        let (requests, window) = (u128::from(quota.requests), u128::from(quota.window.get()));
        return Units::for_quota(quota).is_some_and(|units| {
            u128::from(units.per_micro) * window == u128::from(units.per_request) * requests
        });
    }
    policy.algorithm() != Algorithm::SlidingWindowCounter
        || Ticks::for_quota(quota).is_some_and(|ticks| ticks.micros == 1)
}

#[derive(Clone, Copy, Debug)]
struct QuotaNumbers {
    requests: u64,
    window: u64,
    burst: Option<u64>,
}

fn numbers() -> impl Strategy<Value = QuotaNumbers> {
    let window = (0_usize..24, any::<u64>(), 0_u32..14);
    let requests = (0_usize..20, any::<u64>(), 0_u32..13);
    let burst = (0_u8..12, any::<u64>());
    (window, requests, burst).prop_map(|(window, requests, (kind, raw))| {
        let requests = listed_or_random(&REQUESTS, requests);
        let burst = match kind {
            0..=4 => None,
            5 => Some(1),
            6 => Some(2),
            7 | 8 => Some(1 + raw % 20),
            9 => Some(1 + raw % requests),
            10 => Some(requests.saturating_mul(1 + raw % 5)),
            _ => Some(1 + raw % 1_000_000),
        };
        QuotaNumbers { requests, window: listed_or_random(&WINDOWS_US, window), burst }
    })
}

/// A listed number, or a random one of random magnitude.
fn listed_or_random(listed: &[u64], (at, raw, digits): (usize, u64, u32)) -> u64 {
    listed.get(at).copied().unwrap_or_else(|| 1 + raw % 10_u64.pow(digits))
}

/// The policy with these numbers, or with smaller ones if they are not accepted.
fn nearest_valid(
    algorithm: Algorithm,
    numbers: QuotaNumbers,
    accepts: impl Fn(&Policy) -> bool,
) -> Policy {
    let QuotaNumbers { mut requests, window, mut burst } = numbers;
    if matches!(algorithm, Algorithm::SlidingWindowLog | Algorithm::Concurrent) {
        requests = if requests > MAX_LOG_REQUESTS { 1 + requests % 9 } else { requests };
    }
    loop {
        let quota = Quota {
            requests,
            window: Micros::new(window),
            burst: burst.filter(|_| algorithm.is_bucket()),
        };
        match Policy::new(algorithm, quota) {
            Ok(policy) if accepts(&policy) => return policy,
            _ if burst.is_some() => burst = None,
            // At most 285 requests are exact in any window of up to a year.
            _ => requests = 1 + requests % 97,
        }
    }
}
