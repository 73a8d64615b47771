//! Units of time as Envoy defines them: a month has 30 days, a year 365.

use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};

const DAY: u64 = 86_400;

/// Unit of a limit. The numbers are those of `RateLimitResponse.RateLimit.RateLimitUnit`. Overrides
/// use `envoy.type.v3.RateLimitUnit`, which has the same numbers but no week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RateLimitUnit {
    #[default]
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl RateLimitUnit {
    const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Month, Self::Year, Self::Week];

    /// Returns the unit with this number in an override.
    pub(super) fn from_override(number: u64) -> Option<Self> {
        let matches = |unit: &Self| *unit != Self::Week && *unit as u64 == number;
        Self::ALL.into_iter().find(matches)
    }

    /// Returns the number of an override's unit, given its name.
    pub(super) fn override_number(name: &str) -> Option<u64> {
        let all = [Self::Unknown].into_iter().chain(Self::ALL);
        all.filter(|unit| *unit != Self::Week)
            .find(|unit| unit.name() == name)
            .map(|unit| unit as u64)
    }

    /// Returns the unit in which a policy's limit is reported, or `Unknown` if none fits exactly,
    /// as for a window of ten seconds.
    pub(super) fn for_policy(policy: &Policy) -> Self {
        let quota = policy.quota();
        // The reported limit is the burst, which takes longer to refill than one window.
        let span = if quota.burst() == quota.requests { quota.window } else { policy.period() };
        if policy.is_concurrency() { Self::Unknown } else { Self::for_window(span) }
    }

    /// Returns the unit of this length, or `Unknown` if there is none.
    pub(super) fn for_window(window: Micros) -> Self {
        Self::ALL.into_iter().find(|unit| unit.window() == window).unwrap_or_default()
    }

    pub(super) const fn window(self) -> Micros {
        Micros::from_secs(match self {
            Self::Unknown => 0,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
            Self::Week => "WEEK",
        }
    }
}

/// Returns the seconds until the window that contains `now` ends, rounded up.
pub(super) fn secs_until_next_window(window: Micros, now: Timestamp) -> u64 {
    let window = window.get().max(1);
    Micros::new(window - now.as_micros() % window).as_secs_ceil()
}
