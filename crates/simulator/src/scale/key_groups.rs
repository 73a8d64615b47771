//! How requests are spread over keys: groups of keys with about the same rate.

/// Keys with about the same rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KeyGroup {
    pub(super) keys: f64,
    /// Requests a second for each of the keys, at all nodes together.
    pub(super) rate: f64,
}

/// The busiest keys have a group each.
const SINGLE_KEYS: u64 = 16;

/// Up to this rank weights are added one by one; beyond, an integral is as good.
const EXACT_RANKS: u64 = 1_000;

/// Groups the keys, the busiest first. The k-th key has a weight of k to the power of −`exponent`.
pub(super) fn group_keys(keys: u64, exponent: f64, rate: f64) -> Vec<KeyGroup> {
    let per_weight = rate / weight_of_ranks(1, keys, exponent);
    if exponent == 0.0 {
        return vec![KeyGroup { keys: keys as f64, rate: per_weight }];
    }
    let mut groups = Vec::new();
    let mut first = 1;
    while first <= keys {
        // A group is at most 3/10 of its first rank, so its rates differ by less than that.
        let last = if first <= SINGLE_KEYS { first } else { first + first * 3 / 10 };
        let last = last.min(keys);
        let count = (last - first + 1) as f64;
        let weight = weight_of_ranks(first, last, exponent);
        groups.push(KeyGroup { keys: count, rate: per_weight * weight / count });
        first = last + 1;
    }
    groups
}

/// The rate of every single key, the busiest first.
pub(super) fn key_rates(keys: u64, exponent: f64, rate: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| rate * weight / total).collect()
}

fn weight_of_ranks(first: u64, last: u64, exponent: f64) -> f64 {
    let exact = first..=last.min(EXACT_RANKS);
    let exact: f64 = exact.map(|rank| (rank as f64).powf(-exponent)).sum();
    let rest = first.max(EXACT_RANKS + 1);
    if rest > last {
        return exact;
    }
    let (low, high) = (rest as f64 - 0.5, last as f64 + 0.5);
    let slope = 1.0 - exponent;
    let integral = match slope.abs() < 1e-9 {
        true => (high / low).ln(),
        false => (high.powf(slope) - low.powf(slope)) / slope,
    };
    exact + integral
}

#[cfg(test)]
mod tests {
    use super::{group_keys, key_rates};

    #[test]
    fn groups_hold_every_key_and_request() {
        for (keys, exponent) in [(1, 1.0), (17, 0.8), (5_000, 1.0), (200_000, 1.2), (10, 0.0)] {
            let groups = group_keys(keys, exponent, 1e6);
            let held: f64 = groups.iter().map(|group| group.keys).sum();
            let rate: f64 = groups.iter().map(|group| group.keys * group.rate).sum();
            assert!((held - keys as f64).abs() < 1e-6, "{keys} {exponent}: {held}");
            assert!((rate - 1e6).abs() < 1e-3, "{keys} {exponent}: {rate}");
        }
    }

    #[test]
    fn groups_agree_with_rates_of_single_keys() {
        let (groups, rates) = (group_keys(100_000, 0.9, 1e6), key_rates(100_000, 0.9, 1e6));
        let mut at = 0;
        for group in groups {
            let end = at + (0..).take_while(|count| (*count as f64) < group.keys).count();
            let exact: f64 = rates[at..end].iter().sum();
            let ratio = group.keys * group.rate / exact;
            assert!((ratio - 1.0).abs() < 1e-5, "ranks {at} to {end}: {ratio}");
            at = end;
        }
    }
}
