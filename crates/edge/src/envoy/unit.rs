//! Units of time, as Envoy counts them: a month is 30 days, a year 365.

use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};

const DAY: u64 = 86_400;

/// The unit of a limit. The numbers are those of `RateLimitResponse.RateLimit.Unit`; those of
/// `envoy.type.v3.RateLimitUnit`, in which overrides are told, are the same but for the week, which it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
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

impl Unit {
    const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Month, Self::Year, Self::Week];

    /// The unit of an override.
    pub(super) fn of_override(number: u64) -> Option<Self> {
        let told = |unit: &Self| *unit != Self::Week && *unit as u64 == number;
        Self::ALL.into_iter().find(told)
    }

    /// The number of an override's unit that is told by name.
    pub(super) fn number_of(name: &str) -> Option<u64> {
        let all = [Self::Unknown].into_iter().chain(Self::ALL);
        all.filter(|unit| *unit != Self::Week)
            .find(|unit| unit.name() == name)
            .map(|unit| unit as u64)
    }

    /// The unit that a limit is told in: a window of ten seconds is in none.
    pub(super) fn of(policy: &Policy) -> Self {
        let quota = policy.quota();
        // The limit that is told is the burst, which takes longer to come back than the window is.
        let span = if quota.burst() == quota.requests { quota.window } else { policy.period() };
        let fits = |unit: &Self| unit.window() == span && !policy.is_concurrency();
        Self::ALL.into_iter().find(fits).unwrap_or_default()
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

    /// How long the window lasts that an instant lies in, in whole seconds, rounded up.
    pub(super) fn until_next(self, now: Timestamp) -> u64 {
        let window = self.window().get().max(1);
        Micros::new(window - now.as_micros() % window).as_secs_ceil()
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
