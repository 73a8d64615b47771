//! How much, in how long: the numbers of a rule, and the integer units they are counted in.
//!
//! Everything here is exact integer arithmetic below 2^53, so that a Lua script on doubles reaches
//! the same numbers. Where exactness cannot be had, rounding is on the strict side.

use crate::time::Micros;

/// Lua numbers are doubles: integers are exact below this.
const EXACT: u64 = 1 << 53;

/// Bucket levels stay below this, so that sums of two of them are still exact.
const BUCKET_CEILING: u64 = 1 << 52;

/// A window of at least this many ticks is within 1 ppm of the exact one: up to a tick is lost by
/// rounding down what has elapsed, and up to another by rounding up the ticks a window.
const FINE_TICKS: u64 = 2_000_000;

/// `requests` per `window`, with bursts of up to `burst` for the bucket algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// Requests admitted per window (`L`).
    pub requests: u64,
    /// The window (`W`).
    pub window: Micros,
    /// What a bucket holds (`B`); the same as `requests` when not said.
    pub burst: Option<u64>,
}

impl Quota {
    /// `requests` per `window`, bursts as large as the quota itself.
    #[must_use]
    pub const fn new(requests: u64, window: Micros) -> Self {
        Self { requests, window, burst: None }
    }

    /// The same quota with another burst.
    #[must_use]
    pub const fn with_burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// The burst that counts.
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
    /// `C`: a level above this is over the limit.
    pub capacity: u64,
    /// `C + D`: no level is ever above this, however much is forced.
    pub ceiling: u64,
    micros: Divisor,
    requests: Divisor,
}

impl Units {
    /// The units of a bucket, or nothing if the numbers do not fit even when coarsened.
    #[must_use]
    pub fn of(quota: &Quota) -> Option<Self> {
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
            // A small number of coarse units cannot tell the rate to within 1 ppm.
            let asked = cost * u128::from(requests);
            if (asked - coarse * u128::from(window)).checked_mul(1_000_000)? > asked {
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

    /// The same bucket, holding no more than so many requests.
    pub(crate) fn holding(self, requests: u64) -> Self {
        let capacity = requests.saturating_mul(self.per_request).min(self.capacity);
        Self { capacity, ..self }
    }

    /// How long so many units take to drain.
    #[inline]
    #[must_use]
    pub fn drain_time(&self, used: u64) -> Micros {
        Micros::new(self.micros.divide(used + self.per_micro - 1))
    }

    /// How many requests of cost 1 fit above this level.
    #[inline]
    #[must_use]
    pub fn room_above(&self, used: u64) -> u64 {
        self.requests.divide(self.capacity.saturating_sub(used))
    }
}

/// Division by a number known beforehand, as one multiplication: two divisions were a quarter of a
/// decision. With l = ⌈log2 d⌉ and m = ⌊2^(63+l)/d⌋ + 1, ⌊n·m / 2^(63+l)⌋ = ⌊n/d⌋ for all n < 2^63
/// (Granlund and Montgomery 1994), and no level or sum of two levels reaches 2^53. Of 2n·m the upper
/// word alone is needed.
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

/// A sliding window cut into ticks, coarse enough that counts times ticks stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticks {
    /// Microseconds a tick.
    pub micros: u64,
    /// Ticks a window, rounded up.
    pub per_window: u64,
}

impl Ticks {
    /// The ticks of a sliding window counter, or nothing if they would have to be coarser than 1 ppm.
    #[must_use]
    pub fn of(quota: &Quota) -> Option<Self> {
        let window = quota.window.get();
        // Debt may double the count, hence twice the quota.
        let most = (EXACT / 2).checked_div(quota.requests).filter(|most| *most > 0)?;
        let micros = window.div_ceil(most);
        let per_window = window.div_ceil(micros);
        (micros == 1 || per_window >= FINE_TICKS).then_some(Self { micros, per_window })
    }

    /// The largest count whose product with the ticks of a window is exact: at least twice the quota.
    #[must_use]
    pub const fn most(self) -> u64 {
        EXACT / self.per_window
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
        // (q·L − p·W) / (q·L): how much slower than asked the bucket drains.
        let asked = u128::from(units.per_request) * u128::from(quota.requests);
        let got = u128::from(units.per_micro) * u128::from(quota.window.get());
        assert!(got <= asked, "never faster than asked: {quota:?} {units:?}");
        (asked - got) * 1_000_000_000 / asked
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
            let units = Units::of(&quota).unwrap();
            assert_eq!(error_ppb(&quota, &units), 0, "{quota:?}");
        }
    }

    #[test]
    fn coarsened_quotas_are_strict_and_within_a_ppm() {
        for (requests, window) in [
            (999_983, DAY),
            (301, YEAR),
            (1_000_003, YEAR),
            (31_536_000_000_001, YEAR),
            (7_000_000_001, Micros::from_secs(3_600)),
        ] {
            let quota = Quota::new(requests, window);
            let units = Units::of(&quota).unwrap();
            assert!(error_ppb(&quota, &units) <= 1_000, "{quota:?} {units:?}");
            assert!(units.ceiling <= BUCKET_CEILING);
        }
    }

    #[test]
    fn dividing_by_multiplying_is_exact() {
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
    fn what_cannot_be_counted_is_refused() {
        for burst in [u64::MAX, i64::MAX as u64, 1 << 60] {
            assert_eq!(Units::of(&Quota::new(1, YEAR).with_burst(burst)), None);
            assert_eq!(Ticks::of(&Quota::new(burst, DAY)), None);
        }
        assert_eq!(Units::of(&Quota::new(1, YEAR).with_burst(1_000_000)), None);
    }

    #[test]
    fn a_sliding_window_of_a_million_a_second_for_a_year_is_refused_but_an_hour_of_millions_fits() {
        assert_eq!(Ticks::of(&Quota::new(31_536_000_000_000, YEAR)), None);
        let ticks = Ticks::of(&Quota::new(10_000_000, Micros::from_secs(3_600))).unwrap();
        assert!(ticks.micros > 1 && ticks.per_window * 20_000_000 <= EXACT);
    }
}
