//! Quotas: the number of requests per window, and the integer units they are counted in.
//!
//! All arithmetic here uses exact integers below 2^53, so that a Lua script, which computes in
//! doubles, gets the same results. Where a result cannot be exact, it is rounded to the strict
//! side.

use crate::time::Micros;

/// Lua numbers are doubles: integers are exact below this.
const EXACT_INTEGER_LIMIT: u64 = 1 << 53;

/// Bucket levels stay below this, so that sums of two of them are still exact.
const BUCKET_CEILING: u64 = 1 << 52;

/// A window of at least this many ticks is within 1 ppm of the exact one. Rounding down the elapsed
/// time loses up to one tick, and rounding up the ticks per window loses up to another.
const MIN_COARSE_TICKS: u64 = 2_000_000;

/// `requests` per `window`, with bursts of up to `burst` for the bucket algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// Requests admitted per window (`L`).
    pub requests: u64,
    /// The window (`W`).
    pub window: Micros,
    /// Capacity of a bucket (`B`); defaults to `requests`.
    pub burst: Option<u64>,
}

impl Quota {
    /// `requests` per `window`, with bursts of up to `requests`.
    #[must_use]
    pub const fn new(requests: u64, window: Micros) -> Self {
        Self { requests, window, burst: None }
    }

    /// The same quota with another burst.
    #[must_use]
    pub const fn with_burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// The effective burst.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or(self.requests)
    }
}

/// A bucket in integer units: one request takes `per_request`, one microsecond drains `per_micro`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Units {
    /// `p`: units drained in a microsecond.
    pub per_micro: u64,
    /// `q`: units that a request of cost 1 takes.
    pub per_request: u64,
    /// `C`: the capacity; a level above it is over the limit.
    pub capacity: u64,
    /// `C + D`: the highest possible level, including debt from forced charges.
    pub ceiling: u64,
    micros: Divisor,
    requests: Divisor,
}

impl Units {
    /// The units of a bucket, or `None` if the numbers do not fit even when coarsened.
    #[must_use]
    pub fn for_quota(quota: &Quota) -> Option<Self> {
        let (requests, window, burst) = (quota.requests, quota.window.get(), quota.burst());
        // Debt is capped at one full bucket, so the levels span two of them.
        let span = burst.checked_mul(2)?.checked_add(2)?;
        let shared = gcd(requests, window);
        let (mut per_micro, mut per_request) = (requests / shared, window / shared);
        if u128::from(span) * u128::from(per_request) > u128::from(BUCKET_CEILING) {
            let widest = u128::from(BUCKET_CEILING / span);
            let coarse = widest * u128::from(requests) / u128::from(window);
            // Rounded up: a request never costs less than its share.
            let cost = (coarse * u128::from(window)).div_ceil(u128::from(requests));
            // Too few coarse units cannot represent the rate to within 1 ppm.
            let target = cost * u128::from(requests);
            if (target - coarse * u128::from(window)).checked_mul(1_000_000)? > target {
                return None;
            }
            per_micro = u64::try_from(coarse).ok()?;
            per_request = u64::try_from(cost).ok()?;
        }
        if per_micro == 0 || per_micro > BUCKET_CEILING {
            return None;
        }
        let capacity = burst.checked_mul(per_request)?;
        let ceiling = capacity.checked_mul(2)?;
        let (micros, requests) = (Divisor::new(per_micro), Divisor::new(per_request));
        Some(Self { per_micro, per_request, capacity, ceiling, micros, requests })
    }

    /// How long `used` units take to drain, rounded up.
    #[inline]
    #[must_use]
    pub fn drain_time(&self, used: u64) -> Micros {
        Micros::new(self.micros.divide(used + self.per_micro - 1))
    }

    /// How many requests of cost 1 fit on top of a level of `used` units.
    #[inline]
    #[must_use]
    pub fn room_above(&self, used: u64) -> u64 {
        self.requests.divide(self.capacity.saturating_sub(used))
    }
}

/// Division by an invariant number, done as one multiplication: two divisions took a quarter of a
/// decision's time.
///
/// With l = ⌈log2 d⌉ and m = ⌊2^(63+l)/d⌋ + 1, ⌊n·m / 2^(63+l)⌋ = ⌊n/d⌋ for all n < 2^63 (Granlund
/// and Montgomery 1994). Levels and sums of two levels stay below 2^53. Only the upper word of 2n·m
/// is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Divisor {
    multiplier: u64,
    shift: u32,
}

impl Divisor {
    /// `by` is at least 1 and at most 2^52.
    fn new(by: u64) -> Self {
        let shift = by.next_power_of_two().trailing_zeros();
        let multiplier = (1_u128 << (63 + shift)) / u128::from(by) + 1;
        // At most 2^63 + 1, because the power of two is less than twice `by`.
        Self { multiplier: u64::try_from(multiplier).unwrap_or(u64::MAX), shift }
    }

    #[inline]
    fn divide(self, n: u64) -> u64 {
        let upper = (u128::from(n << 1) * u128::from(self.multiplier)) >> 64;
        upper as u64 >> self.shift
    }
}

/// A sliding window divided into ticks, coarse enough that counts times ticks stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticks {
    /// Microseconds per tick.
    pub micros: u64,
    /// Ticks per window, rounded up.
    pub per_window: u64,
}

impl Ticks {
    /// The ticks of a sliding window counter, or `None` if they would be less exact than 1 ppm.
    #[must_use]
    pub fn for_quota(quota: &Quota) -> Option<Self> {
        let window = quota.window.get();
        // Debt may double the count, hence twice the quota.
        let max_ticks =
            (EXACT_INTEGER_LIMIT / 2).checked_div(quota.requests).filter(|ticks| *ticks > 0)?;
        let micros = window.div_ceil(max_ticks);
        let per_window = window.div_ceil(micros);
        (micros == 1 || per_window >= MIN_COARSE_TICKS).then_some(Self { micros, per_window })
    }

    /// The largest count whose product with the ticks per window is exact: at least twice the
    /// quota.
    #[must_use]
    pub const fn max_count(self) -> u64 {
        EXACT_INTEGER_LIMIT / self.per_window
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Micros = Micros::from_secs(86_400);
    const YEAR: Micros = Micros::from_secs(31_536_000);

    fn error_ppb(quota: &Quota, units: &Units) -> u128 {
        // (q·L − p·W) / (q·L): how much slower than the quota the bucket drains.
        let target = u128::from(units.per_request) * u128::from(quota.requests);
        let actual = u128::from(units.per_micro) * u128::from(quota.window.get());
        assert!(actual <= target, "drains faster than the quota: {quota:?} {units:?}");
        (target - actual) * 1_000_000_000 / target
    }

    #[test]
    fn common_quotas_are_exact() {
        for (requests, window) in [
            (1, Micros::from_secs(1)),
            (10, Micros::from_secs(1)),
            (1_000_000, Micros::from_secs(1)),
            (100_000_000, Micros::from_secs(60)),
            (2_000_000, Micros::from_secs(3_600)),
            (104_249, DAY),
            (285, YEAR),
        ] {
            let quota = Quota::new(requests, window);
            let units = Units::for_quota(&quota).unwrap();
            assert_eq!(error_ppb(&quota, &units), 0, "{quota:?}");
        }
    }

    #[test]
    fn coarsened_quotas_stay_within_one_ppm() {
        for (requests, window) in [
            (999_983, DAY),
            (301, YEAR),
            (1_000_003, YEAR),
            (31_536_000_000_001, YEAR),
            (7_000_000_001, Micros::from_secs(3_600)),
        ] {
            let quota = Quota::new(requests, window);
            let units = Units::for_quota(&quota).unwrap();
            assert!(error_ppb(&quota, &units) <= 1_000, "{quota:?} {units:?}");
            assert!(units.ceiling <= BUCKET_CEILING);
        }
    }

    /// Counters of equal rates are on the same scale, so an edit need not convert them.
    #[test]
    fn equal_rates_have_equal_units() {
        let units = |requests, secs| {
            let units = Units::for_quota(&Quota::new(requests, Micros::from_secs(secs))).unwrap();
            (units.per_micro, units.per_request)
        };
        assert_eq!(units(10, 1), (1, 100_000));
        assert_eq!(units(600, 60), (1, 100_000));
    }

    #[test]
    fn fastest_and_least_exact_buckets_are_accepted() {
        let fastest = Quota::new(1 << 52, Micros::new(1)).with_burst(1);
        assert_eq!(Units::for_quota(&fastest).map(|units| units.per_micro), Some(1 << 52));
        let faster = Quota::new((1 << 52) + 1, Micros::new(1)).with_burst(1);
        assert_eq!(Units::for_quota(&faster), None);
        // One unit in a microsecond and 500 000 in a request: exactly 1 ppm too slow.
        let least_exact = Quota::new(2, Micros::new(999_999)).with_burst(3_200_000_000);
        let units = Units::for_quota(&least_exact).unwrap();
        assert_eq!((units.per_micro, units.per_request), (1, 500_000));
        assert_eq!(error_ppb(&least_exact, &units), 1_000);
    }

    #[test]
    fn reciprocal_division_is_exact() {
        let interesting = |bits: u32| {
            (0..=bits)
                .flat_map(|bit| [-1_i64, 0, 1].map(|off| (1_u64 << bit).saturating_add_signed(off)))
        };
        for by in interesting(52).filter(|by| *by > 0 && *by <= 1 << 52) {
            let divisor = Divisor::new(by);
            for n in interesting(53).filter(|n| *n < 1 << 53) {
                let multiple = n / by * by;
                for n in [n, multiple, multiple.saturating_sub(1)] {
                    assert_eq!(divisor.divide(n), n / by, "{n} / {by}");
                }
            }
        }
    }

    #[test]
    fn unrepresentable_quotas_are_rejected() {
        for burst in [u64::MAX, i64::MAX as u64, 1 << 60] {
            assert_eq!(Units::for_quota(&Quota::new(1, YEAR).with_burst(burst)), None);
            assert_eq!(Ticks::for_quota(&Quota::new(burst, DAY)), None);
        }
        assert_eq!(Units::for_quota(&Quota::new(1, YEAR).with_burst(1_000_000)), None);
    }

    #[test]
    fn oversized_sliding_windows_are_rejected() {
        assert_eq!(Ticks::for_quota(&Quota::new(31_536_000_000_000, YEAR)), None);
        let ticks = Ticks::for_quota(&Quota::new(10_000_000, Micros::from_secs(3_600))).unwrap();
        assert!(ticks.micros > 1 && ticks.per_window * 20_000_000 <= EXACT_INTEGER_LIMIT);
    }
}
