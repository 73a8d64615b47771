//! A policy: an algorithm with its quota, checked once so that deciding cannot fail.

use std::fmt;

use crate::algorithm::concurrent;
use crate::quota::{Quota, Ticks, Units};
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

/// The longest sliding window log: it keeps one entry a request.
pub const MAX_LOG_REQUESTS: u64 = 10_000;

/// The most slots of a concurrency limit: it keeps one entry a slot.
pub const MAX_SLOTS: u64 = MAX_LOG_REQUESTS;

/// The largest count that a window algorithm keeps (debt may double it; a table packs 48 bits).
pub const MAX_WINDOW_REQUESTS: u64 = (1 << 47) - 1;

/// The longest window, about 142 years: an instant plus a window stays exact below 2^53.
pub const MAX_WINDOW: Micros = Micros::new((1 << 52) - 1);

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tokens refill steadily up to the burst; each request takes some.
    TokenBucket,
    /// Requests fill a bucket that leaks steadily.
    LeakyBucket(Leak),
    /// A count that starts anew at each multiple of the window.
    FixedWindow,
    /// Every request of the last window, with its time.
    SlidingWindowLog,
    /// This window's count plus the overlapping share of the last one's.
    SlidingWindowCounter,
    /// Slots that are held until they are released; the window is their lease.
    Concurrent,
}

/// What a leaky bucket does with a request that fits but has others before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leak {
    /// Lets it pass at once, as a token bucket would.
    Police,
    /// Admits it with a delay, so that requests leave at a constant rate.
    Queue,
}

impl Algorithm {
    /// The five that count requests in time, the leaky bucket policing.
    pub const ALL: [Self; 5] = [
        Self::TokenBucket,
        Self::LeakyBucket(Leak::Police),
        Self::FixedWindow,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
    ];

    /// The name that rules use.
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

    /// Whether a burst means something to it.
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

/// Why a policy cannot be had, said so that a person can change the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// No requests at all.
    ZeroRequests,
    /// No time at all.
    ZeroWindow,
    /// No burst at all.
    ZeroBurst,
    /// The window is longer than [`MAX_WINDOW`].
    WindowTooLong,
    /// A burst on an algorithm that has none.
    BurstOnWindow(Algorithm),
    /// A log longer than [`MAX_LOG_REQUESTS`].
    LogTooLong,
    /// More slots than [`MAX_SLOTS`].
    TooManySlots,
    /// More than a window algorithm counts.
    TooManyRequests(Algorithm),
    /// A bucket whose level would pass 2^52 in units that tell its rate to within 1 ppm.
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
    since: Timestamp,
    limit: u64,
    pub(crate) meter: Meter,
    pub(crate) scale: ScaleId,
}

/// The numbers an algorithm counts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A token or leaky bucket.
    Bucket {
        /// What a request takes and a microsecond gives back.
        units: Units,
        /// What becomes of a request that has others before it.
        leak: Leak,
    },
    /// A fixed window.
    Fixed,
    /// A sliding window log.
    Log,
    /// A sliding window counter.
    Counter(Ticks),
    /// Slots that are held.
    Slots,
}

impl Meter {
    pub(crate) const fn is_bucket(&self) -> bool {
        matches!(self, Self::Bucket { .. })
    }
}

impl Policy {
    /// A policy, or why its numbers do not work.
    ///
    /// # Errors
    /// See [`PolicyError`].
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
            Algorithm::TokenBucket => bucket(&quota, Leak::Police)?,
            Algorithm::LeakyBucket(leak) => bucket(&quota, leak)?,
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
                (Meter::Slots, Scale::Slots { lease: window })
            }
            Algorithm::SlidingWindowCounter => {
                let ticks = Ticks::of(&quota).ok_or(PolicyError::TooManyRequests(algorithm))?;
                (Meter::Counter(ticks), Scale::Counter { window })
            }
        };
        let limit = if algorithm.is_bucket() { quota.burst() } else { quota.requests };
        let (since, scale) = (Timestamp::EPOCH, scale.intern());
        Ok(Self { algorithm, quota, since, limit, meter, scale })
    }

    /// The same policy, in force since an instant of the store's clock: what was counted under
    /// another policy drains at that one's rate until then, and at this one's from then on.
    #[must_use]
    pub const fn in_force_since(self, since: Timestamp) -> Self {
        Self { since, ..self }
    }

    /// Since when it is in force.
    #[must_use]
    pub const fn since(&self) -> Timestamp {
        self.since
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

    /// The numbers it counts with, for a store that counts elsewhere.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The scale that its states are written on.
    #[must_use]
    pub const fn scale(&self) -> ScaleId {
        self.scale
    }

    /// The most that passes at once: the burst of a bucket, the requests of a window.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether it limits how many requests are under way at once, not how many come in a time: what is
    /// charged is held until it is given back, or until its lease ends.
    #[must_use]
    pub const fn is_concurrency(&self) -> bool {
        matches!(self.meter, Meter::Slots)
    }

    /// How long a slot is held that is not renewed, if it is slots that are limited.
    #[must_use]
    pub fn lease(&self) -> Option<Micros> {
        self.is_concurrency().then_some(self.quota.window)
    }

    /// The most entries that its log has, if it keeps one.
    #[must_use]
    pub const fn log_entries(&self) -> Option<u64> {
        match self.meter {
            Meter::Log => Some(self.quota.requests),
            Meter::Slots => Some(concurrent::most_entries(self.quota.requests)),
            Meter::Bucket { .. } | Meter::Fixed | Meter::Counter(_) => None,
        }
    }

    /// The most that is admitted in any interval as long as the window, wherever it begins; of slots, the most
    /// that are held at once.
    #[must_use]
    pub const fn most_in_window(&self) -> u64 {
        let requests = self.quota.requests;
        match self.meter {
            Meter::Bucket { .. } => self.limit.saturating_add(requests),
            // Two windows meet in it.
            Meter::Fixed | Meter::Counter(_) => requests.saturating_mul(2),
            Meter::Log | Meter::Slots => requests,
        }
    }

    /// How long the whole limit takes to come back: the window, or the time a full bucket drains in.
    #[must_use]
    pub fn period(&self) -> Micros {
        match self.meter {
            Meter::Bucket { units, .. } => units.drain_time(units.capacity),
            _ => self.quota.window,
        }
    }
}

fn bucket(quota: &Quota, leak: Leak) -> Result<(Meter, Scale), PolicyError> {
    if quota.burst() == 0 {
        return Err(PolicyError::ZeroBurst);
    }
    let units = Units::of(quota).ok_or(PolicyError::BucketTooLarge)?;
    let scale = Scale::Bucket { per_micro: units.per_micro, per_request: units.per_request };
    Ok((Meter::Bucket { units, leak }, scale))
}
