//! What Envoy is told: a status for each descriptor, in order, and headers for the client.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_core::decision::Retry;
use tidegate_engine::{Decision, RuleReading};
use tidegate_rules::{Limit, Mode, Rule};

use super::service::{Decided, Shut};
use super::unit::Unit;

/// A `RateLimitResponse`.
#[derive(Debug)]
pub(crate) struct Answer<'d> {
    /// As many as there were descriptors, in their order.
    pub(crate) statuses: SmallVec<[DescriptorStatus<'d>; 2]>,
    headers: &'d HeaderMap,
}

/// The code of an answer or of a status. There is no code for "unknown": Envoy lets such a request pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 1,
    OverLimit = 2,
}

/// What is said to one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorStatus<'d> {
    pub(crate) code: Code,
    pub(crate) current_limit: Option<CurrentLimit<'d>>,
    pub(crate) limit_remaining: u32,
    /// Whole seconds: Envoy drops what is below.
    pub(crate) reset_secs: Option<u64>,
}

/// The limit that a status tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentLimit<'d> {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Unit,
    pub(crate) name: &'d str,
}

impl<'d> Answer<'d> {
    pub(crate) fn of(decided: &'d Decided) -> Self {
        let mut statuses: SmallVec<[DescriptorStatus<'d>; 2]> =
            decided.decisions.iter().map(DescriptorStatus::of).collect();
        for shut in &decided.shut {
            if let Some(status) = statuses.get_mut(shut.at) {
                shut.tell(status);
            }
        }
        Self { statuses, headers: &decided.headers }
    }

    pub(crate) fn overall_code(&self) -> Code {
        match self.statuses.iter().any(|status| status.code == Code::OverLimit) {
            true => Code::OverLimit,
            false => Code::Ok,
        }
    }

    /// Headers for the client, names and values.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'d HeaderName, &'d HeaderValue)> {
        self.headers.iter()
    }
}

impl<'d> CurrentLimit<'d> {
    fn of(rule: &'d Rule, limit: u64) -> Self {
        let unit = rule.limit().policy().map(Unit::of).unwrap_or_default();
        Self { requests_per_unit: narrow(limit), unit, name: rule.id() }
    }
}

impl Shut {
    /// Tells the unit that the limit was in, and when the next window begins, as the reference server does.
    fn tell(&self, status: &mut DescriptorStatus<'_>) {
        if let Some(limit) = &mut status.current_limit {
            limit.unit = self.unit;
        }
        status.reset_secs = self.now.map(|now| self.unit.until_next(now));
    }
}

impl Code {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl<'d> DescriptorStatus<'d> {
    /// Nothing to say: no rule governs it, or none that may be told of.
    const PASSES: Self =
        Self { code: Code::Ok, current_limit: None, limit_remaining: 0, reset_secs: None };

    fn of(decision: &'d Decision) -> Self {
        let unlimited = || decision.readings().any(|(rule, _)| *rule.limit() == Limit::Unlimited);
        match decision.tightest() {
            Some((rule, reading)) if *rule.mode() != Mode::Shadow => Self::told(rule, reading),
            None if unlimited() => Self { limit_remaining: u32::MAX, ..Self::PASSES },
            _ => Self { current_limit: Self::unasked(decision), ..Self::PASSES },
        }
    }

    /// The limit of a descriptor whose counter was not looked at, because another of its call is known to be
    /// refused.
    fn unasked(decision: &'d Decision) -> Option<CurrentLimit<'d>> {
        let mut uncounted = decision
            .readings()
            .filter(|(rule, reading)| reading.numbers.is_none() && *rule.mode() != Mode::Shadow);
        uncounted.find_map(|(rule, _)| Some(CurrentLimit::of(rule, rule.limit().policy()?.limit())))
    }

    fn told(rule: &'d Rule, reading: &RuleReading) -> Self {
        let numbers = reading.numbers.unwrap_or_default();
        let code = if reading.verdict.refuses() { Code::OverLimit } else { Code::Ok };
        let reset_secs = match (code, reading.retry()) {
            // Envoy tells its client to come back when a refused status resets.
            (Code::OverLimit, Retry::After(wait)) => Some(wait.as_secs_ceil().max(1)),
            (Code::OverLimit, Retry::Now) => Some(1),
            (Code::OverLimit, Retry::Never) => None,
            (Code::Ok, _) => Some(numbers.reset_after.as_secs_ceil()),
        };
        Self {
            code,
            current_limit: Some(CurrentLimit::of(rule, numbers.limit)),
            limit_remaining: narrow(numbers.remaining),
            reset_secs,
        }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
