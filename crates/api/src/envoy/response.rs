//! The response to Envoy: one status per descriptor, in order, and headers for the client.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_core::decision::Retry;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::{Decision, RuleReading};
use tidegate_rules::{Rule, RuleLimit, RuleMode};

use super::service::EnvoyDecisions;
use super::unit::{RateLimitUnit, secs_until_next_window};

/// A `RateLimitResponse`.
#[derive(Debug)]
pub(crate) struct EnvoyResponse<'d> {
    /// One per descriptor, in the same order.
    pub(crate) statuses: SmallVec<[DescriptorStatus<'d>; 2]>,
    headers: &'d HeaderMap,
}

/// Code of a response or status. `UNKNOWN` is missing on purpose: Envoy lets such a request pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateLimitCode {
    Ok = 1,
    OverLimit = 2,
}

/// Status of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorStatus<'d> {
    pub(crate) code: RateLimitCode,
    pub(crate) current_limit: Option<CurrentLimit<'d>>,
    pub(crate) limit_remaining: u32,
    /// Whole seconds, because Envoy ignores fractions.
    pub(crate) reset_secs: Option<u64>,
}

/// The limit that a status reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentLimit<'d> {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: RateLimitUnit,
    pub(crate) name: &'d str,
}

impl<'d> EnvoyResponse<'d> {
    pub(crate) fn from_decisions(decisions: &'d EnvoyDecisions) -> Self {
        let status = |decision| DescriptorStatus::from_decision(decision, decisions.now);
        let statuses = decisions.decisions.iter().map(status).collect();
        Self { statuses, headers: &decisions.headers }
    }

    pub(crate) fn overall_code(&self) -> RateLimitCode {
        match self.statuses.iter().any(|status| status.code == RateLimitCode::OverLimit) {
            true => RateLimitCode::OverLimit,
            false => RateLimitCode::Ok,
        }
    }

    /// Headers for Envoy to add to the client's response.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'d HeaderName, &'d HeaderValue)> {
        self.headers.iter()
    }
}

impl<'d> CurrentLimit<'d> {
    fn for_rule(rule: &'d Rule, limit: u64) -> Self {
        let unit = match rule.limit() {
            RuleLimit::Policy(policy) => RateLimitUnit::for_policy(policy),
            limit => zero_limit_window(limit).map(RateLimitUnit::for_window).unwrap_or_default(),
        };
        Self { requests_per_unit: saturating_u32(limit), unit, name: rule.id() }
    }
}

/// The window of a limit of 0 requests.
pub(super) const fn zero_limit_window(limit: &RuleLimit) -> Option<Micros> {
    match limit {
        RuleLimit::Deny { window } => *window,
        RuleLimit::Policy(_) | RuleLimit::Unlimited => None,
    }
}

impl RateLimitCode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl<'d> DescriptorStatus<'d> {
    /// Status without a limit: no rule applies, or only rules in shadow mode.
    const NO_LIMIT: Self =
        Self { code: RateLimitCode::Ok, current_limit: None, limit_remaining: 0, reset_secs: None };

    fn from_decision(decision: &'d Decision, now: Option<Timestamp>) -> Self {
        let unlimited =
            || decision.readings().any(|(rule, _)| *rule.limit() == RuleLimit::Unlimited);
        match decision.tightest() {
            Some((rule, reading)) if *rule.mode() != RuleMode::Shadow => {
                Self::from_reading(rule, reading, now)
            }
            None if unlimited() => Self { limit_remaining: u32::MAX, ..Self::NO_LIMIT },
            _ => Self { current_limit: Self::uncounted_limit(decision), ..Self::NO_LIMIT },
        }
    }

    /// Returns the limit of a descriptor whose counter was not read, because another descriptor of
    /// the request is already refused.
    fn uncounted_limit(decision: &'d Decision) -> Option<CurrentLimit<'d>> {
        let mut uncounted = decision.readings().filter(|(rule, reading)| {
            reading.numbers.is_none() && *rule.mode() != RuleMode::Shadow
        });
        uncounted.find_map(|(rule, _)| {
            Some(CurrentLimit::for_rule(rule, rule.limit().policy()?.limit()))
        })
    }

    fn from_reading(rule: &'d Rule, reading: &RuleReading, now: Option<Timestamp>) -> Self {
        let numbers = reading.numbers.unwrap_or_default();
        let code =
            if reading.verdict.refuses() { RateLimitCode::OverLimit } else { RateLimitCode::Ok };
        let reset_secs = match (code, reading.retry()) {
            // Envoy uses the reset of a refused status as its client's retry delay.
            (RateLimitCode::OverLimit, Retry::After(wait)) => Some(wait.as_secs_ceil().max(1)),
            (RateLimitCode::OverLimit, Retry::Now) => Some(1),
            // The reference server reports the start of the next window for a limit of 0.
            (RateLimitCode::OverLimit, Retry::Never) => zero_limit_window(rule.limit())
                .zip(now)
                .map(|(window, now)| secs_until_next_window(window, now)),
            (RateLimitCode::Ok, _) => Some(numbers.reset_after.as_secs_ceil()),
        };
        Self {
            code,
            current_limit: Some(CurrentLimit::for_rule(rule, numbers.limit)),
            limit_remaining: saturating_u32(numbers.remaining),
            reset_secs,
        }
    }
}

fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
