//! Policies: an algorithm with its quota, validated once so that decisions cannot fail.

use std::fmt;

use crate::algorithm::concurrent;
use crate::quota::{Quota, Ticks, Units};
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

/// The longest sliding window log, which has one entry per request.
pub const MAX_LOG_REQUESTS: u64 = 10_000;

/// The most slots of a concurrency limit, which has one log entry per slot.
pub const MAX_SLOTS: u64 = MAX_LOG_REQUESTS;

/// The largest limit of a window algorithm. Debt may double the count, which must fit in 48 bits.
pub const MAX_WINDOW_REQUESTS: u64 = (1 << 47) - 1;

/// The longest window, about 142 years, so that an instant plus a window stays below 2^53.
pub const MAX_WINDOW: Micros = Micros::new((1 << 52) - 1);

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tokens refill at a constant rate up to the burst; each request takes some.
    TokenBucket,
    /// Requests fill a bucket that leaks at a constant rate.
    LeakyBucket(LeakMode),
    /// A count that restarts at each multiple of the window.
    FixedWindow,
    /// Every request of the last window, with its time.
    SlidingWindowLog,
    /// The current window's count plus the overlapping share of the previous window's count.
    SlidingWindowCounter,
    /// Slots that are held until they are released; the window is the hold time.
    Concurrent,
}

/// What a leaky bucket does with a request that fits while earlier ones have not leaked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeakMode {
    /// Admits it immediately, as a token bucket would.
    Police,
    /// Admits it with a delay, so that requests leave at a constant rate.
    Queue,
}

impl Algorithm {
    /// The five algorithms that limit rates; the leaky bucket is a policing one.
    pub const ALL: [Self; 5] = [
        Self::TokenBucket,
        Self::LeakyBucket(LeakMode::Police),
        Self::FixedWindow,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
    ];

    /// The name used in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::Concurrent => "concurrent",
        }
    }

    /// Whether the algorithm is a bucket, and so supports a burst.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket(_))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a policy is invalid. The messages say how to change the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The limit is zero requests.
    ZeroRequests,
    /// The window is zero.
    ZeroWindow,
    /// The burst is zero.
    ZeroBurst,
    /// The window is longer than [`MAX_WINDOW`].
    WindowTooLong,
    /// The algorithm does not support a burst.
    BurstOnWindow(Algorithm),
    /// The log would be longer than [`MAX_LOG_REQUESTS`].
    LogTooLong,
    /// The limit has more slots than [`MAX_SLOTS`].
    TooManySlots,
    /// The limit is larger than a window algorithm can count.
    TooManyRequests(Algorithm),
    /// The level would exceed 2^52 in units that represent the rate to within 1 ppm.
    BucketTooLarge,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRequests => f.write_str("a limit of 0 requests admits nothing; write `requests: deny` if that is meant"),
            Self::ZeroWindow => f.write_str("a window must be at least 1us"),
            Self::ZeroBurst => f.write_str("a burst of 0 admits nothing; leave `burst` out for one as large as `requests`"),
            Self::WindowTooLong => f.write_str("a window can be at most 52124d (142 years)"),
            Self::BurstOnWindow(algorithm) => write!(f, "{algorithm} has no burst; leave it out, or use token_bucket"),
            Self::LogTooLong => write!(f, "sliding_window_log keeps every request and is capped at {MAX_LOG_REQUESTS}; use sliding_window_counter for more"),
            Self::TooManySlots => write!(f, "a concurrency limit keeps every slot and is capped at {MAX_SLOTS}"),
            Self::TooManyRequests(algorithm) => write!(f, "{algorithm} cannot count that many requests exactly in such a window; use a smaller number, a shorter window or token_bucket"),
            Self::BucketTooLarge => f.write_str("a burst this large at this rate cannot be counted to within 1 ppm; use a smaller burst"),
        }
    }
}

impl std::error::Error for PolicyError {}

/// An algorithm with its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    algorithm: Algorithm,
    quota: Quota,
    effective_since: Timestamp,
    limit: u64,
    pub(crate) meter: Meter,
    pub(crate) scale: ScaleId,
}

/// The internal parameters of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A token or leaky bucket.
    Bucket {
        /// Units per request and per microsecond.
        units: Units,
        /// Whether a request waits for earlier ones to leak.
        leak: LeakMode,
    },
    /// A fixed window.
    Fixed,
    /// A sliding window log.
    Log,
    /// A sliding window counter.
    Counter(Ticks),
    /// A log of held slots.
    Slots,
}

impl Meter {
    pub(crate) const fn is_bucket(&self) -> bool {
        matches!(self, Self::Bucket { .. })
    }
}

impl Policy {
    /// Validates a quota for an algorithm.
    ///
    /// # Errors
    /// If the numbers are invalid; see [`PolicyError`].
    pub fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, PolicyError> {
        let window = quota.window;
        if quota.requests == 0 {
            return Err(PolicyError::ZeroRequests);
        }
        if window == Micros::ZERO {
            return Err(PolicyError::ZeroWindow);
        }
        if window > MAX_WINDOW {
            return Err(PolicyError::WindowTooLong);
        }
        if !algorithm.is_bucket() {
            if quota.burst.is_some() {
                return Err(PolicyError::BurstOnWindow(algorithm));
            }
            if quota.requests > MAX_WINDOW_REQUESTS {
                return Err(PolicyError::TooManyRequests(algorithm));
            }
        }
        let (meter, scale) = match algorithm {
            Algorithm::TokenBucket => bucket_meter(&quota, LeakMode::Police)?,
            Algorithm::LeakyBucket(leak) => bucket_meter(&quota, leak)?,
            Algorithm::FixedWindow => (Meter::Fixed, Scale::Fixed { window }),
            Algorithm::SlidingWindowLog => {
                if quota.requests > MAX_LOG_REQUESTS {
                    return Err(PolicyError::LogTooLong);
                }
                (Meter::Log, Scale::Log { window })
            }
            Algorithm::Concurrent => {
                if quota.requests > MAX_SLOTS {
                    return Err(PolicyError::TooManySlots);
                }
                (Meter::Slots, Scale::Slots { hold: window })
            }
            Algorithm::SlidingWindowCounter => {
                let ticks =
                    Ticks::for_quota(&quota).ok_or(PolicyError::TooManyRequests(algorithm))?;
                (Meter::Counter(ticks), Scale::Counter { window })
            }
        };
        let limit = if algorithm.is_bucket() { quota.burst() } else { quota.requests };
        let (since, scale) = (Timestamp::EPOCH, scale.intern());
        Ok(Self { algorithm, quota, effective_since: since, limit, meter, scale })
    }

    /// The same policy, in effect since an instant of the store's clock. Usage counted under an
    /// earlier policy drains at the earlier rate until that instant, and at this rate from then on.
    #[must_use]
    pub const fn with_effective_since(self, since: Timestamp) -> Self {
        Self { effective_since: since, ..self }
    }

    /// When the policy took effect.
    #[must_use]
    pub const fn effective_since(&self) -> Timestamp {
        self.effective_since
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The internal parameters, for a store that counts outside this process.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The scale of its states.
    #[must_use]
    pub const fn scale(&self) -> ScaleId {
        self.scale
    }

    /// The largest cost that can pass at one instant: the burst of a bucket, or the requests of a
    /// window.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether the policy limits the number of concurrent requests rather than a rate. A charge
    /// then holds slots until they are released or their hold time ends.
    #[must_use]
    pub const fn is_concurrency(&self) -> bool {
        matches!(self.meter, Meter::Slots)
    }

    /// How long a slot is held without renewal, or `None` if this is not a concurrency limit.
    #[must_use]
    pub fn slot_hold(&self) -> Option<Micros> {
        self.is_concurrency().then_some(self.quota.window)
    }

    /// The most entries of its log, or `None` if the algorithm has no log.
    #[must_use]
    pub const fn max_log_entries(&self) -> Option<u64> {
        match self.meter {
            Meter::Log => Some(self.quota.requests),
            Meter::Slots => Some(concurrent::max_entries(self.quota.requests)),
            Meter::Bucket { .. } | Meter::Fixed | Meter::Counter(_) => None,
        }
    }

    /// The most that can be admitted in any interval as long as the window, wherever it begins. For
    /// a concurrency limit, the most slots that can be held at once.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        let requests = self.quota.requests;
        match self.meter {
            Meter::Bucket { .. } => self.limit.saturating_add(requests),
            // The interval can overlap two windows.
            Meter::Fixed | Meter::Counter(_) => requests.saturating_mul(2),
            Meter::Log | Meter::Slots => requests,
        }
    }

    /// Time until a used-up limit is fully available again: the window, or the time in which a full
    /// bucket drains.
    #[must_use]
    pub fn period(&self) -> Micros {
        match self.meter {
            Meter::Bucket { units, .. } => units.drain_time(units.capacity),
            _ => self.quota.window,
        }
    }
}

fn bucket_meter(quota: &Quota, leak: LeakMode) -> Result<(Meter, Scale), PolicyError> {
    if quota.burst() == 0 {
        return Err(PolicyError::ZeroBurst);
    }
    let units = Units::for_quota(quota).ok_or(PolicyError::BucketTooLarge)?;
    let scale = Scale::Bucket { per_micro: units.per_micro, per_request: units.per_request };
    Ok((Meter::Bucket { units, leak }, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);

    fn result_of(algorithm: Algorithm, requests: u64, window: Micros) -> Result<(), PolicyError> {
        Policy::new(algorithm, Quota::new(requests, window)).map(|_| ())
    }

    /// The numbers are part of the documentation of rules, and of what a store can pack.
    #[test]
    fn largest_countable_numbers_are_accepted() {
        use Algorithm::{Concurrent, FixedWindow, SlidingWindowLog};
        let too_many = PolicyError::TooManyRequests(FixedWindow);
        for (algorithm, largest, error) in [
            (FixedWindow, 0x7fff_ffff_ffff, too_many),
            (SlidingWindowLog, 10_000, PolicyError::LogTooLong),
            (Concurrent, 10_000, PolicyError::TooManySlots),
        ] {
            assert_eq!(result_of(algorithm, largest, SECOND), Ok(()), "{algorithm}");
            assert_eq!(result_of(algorithm, largest + 1, SECOND), Err(error), "{algorithm}");
        }
        let longest = Micros::new(0xf_ffff_ffff_ffff);
        let longer = Micros::new(longest.get() + 1);
        assert_eq!(result_of(FixedWindow, 1, longest), Ok(()));
        assert_eq!(result_of(FixedWindow, 1, longer), Err(PolicyError::WindowTooLong));
    }

    #[test]
    fn admission_maximum_covers_any_window_position() {
        use Algorithm::{
            Concurrent, FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
        };
        let most = |algorithm, burst| {
            let quota = Quota { requests: 10, window: SECOND, burst };
            Policy::new(algorithm, quota).unwrap().max_in_window()
        };
        assert_eq!(most(TokenBucket, Some(3)), 13, "the burst, and the refill of one window");
        assert_eq!([FixedWindow, SlidingWindowCounter].map(|one| most(one, None)), [20, 20]);
        assert_eq!([SlidingWindowLog, Concurrent].map(|one| most(one, None)), [10, 10]);
    }

    #[test]
    fn algorithms_have_the_names_used_in_rules() {
        let names = Algorithm::ALL.map(Algorithm::name);
        let windows = ["fixed_window", "sliding_window_log", "sliding_window_counter"];
        assert_eq!(names[..2], ["token_bucket", "leaky_bucket"]);
        assert_eq!(names[2..], windows);
        assert_eq!(Algorithm::Concurrent.name(), "concurrent");
    }
}
