//! Calls of exact rules, in closed form: one for each request that the deny cache does not answer.
//!
//! `tidegate_redis` caches a refusal until one more request can pass, for at least a millisecond
//! and at most a second (`deny_cache.rs`). A node therefore asks about an exhausted counter at most
//! once in that span, with the first request after the last refusal has ended.

use tidegate_core::policy::{Algorithm, Policy};

use super::case::seconds;
use super::estimate::PairRates;

/// The shortest and longest refusal that the deny cache keeps, in seconds.
const MIN_CACHED: f64 = 0.001;
const MAX_CACHED: f64 = 1.0;

/// What one node does for one key that gets `rate` requests a second at each of `nodes` nodes.
pub(super) fn pair_rates(policy: &Policy, rate: f64, nodes: f64) -> PairRates {
    let quota = policy.quota();
    let allowed = quota.requests as f64 / seconds(quota.window) / nodes;
    let admitted = rate.min(allowed);
    let refused = rate - admitted;
    let span = refusal_span(policy, admitted / rate);
    let asked = match span > MIN_CACHED {
        // The node asks in every span with at least one request.
        true => -(-refused * span).exp_m1() / span,
        false => refused,
    };
    let direct = admitted + asked.min(refused);
    PairRates { requests: rate, admitted, direct, local: rate - direct, ..PairRates::default() }
}

/// How long a refusal lasts in an exhausted counter.
fn refusal_span(policy: &Policy, admitted: f64) -> f64 {
    let quota = policy.quota();
    let window = seconds(quota.window);
    let span = match policy.algorithm() {
        // Nothing passes until the window ends.
        Algorithm::FixedWindow => window * (1.0 - admitted),
        _ => window / quota.requests as f64,
    };
    span.min(MAX_CACHED)
}

#[cfg(test)]
mod tests {
    use super::pair_rates;
    use crate::scale::case::LimitQuota;

    fn calls(limit: &str, rate: f64, nodes: f64) -> f64 {
        pair_rates(LimitQuota::parse(limit).unwrap().policy(), rate, nodes).direct
    }

    #[test]
    fn request_below_limit_is_one_call() {
        assert_eq!(calls("100/s", 10.0, 5.0), 10.0);
    }

    #[test]
    fn exhausted_counter_is_asked_once_a_refill() {
        // 100 refills a second, of which this node gets ten.
        assert!((calls("100/s", 5_000.0, 10.0) - 110.0).abs() < 1e-6);
        // A cached refusal lasts at most a second.
        assert!((calls("6/min", 5_000.0, 10.0) - 1.01).abs() < 1e-6);
    }

    #[test]
    fn refusals_shorter_than_millisecond_are_not_cached() {
        assert_eq!(calls("5000/s", 100_000.0, 1.0), 100_000.0);
    }

    #[test]
    fn rare_requests_are_not_answered_from_cache() {
        let share = calls("100/s", 1.0, 1_000.0);
        assert!((0.99..=1.0).contains(&share), "{share}");
    }
}
