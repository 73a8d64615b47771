//! Consistency modes: how nodes that share a store agree on a rule's counters, and the most that
//! the rule admits meanwhile.
//!
//! This module holds the settings and the policies that follow from them. The limiter leases,
//! flushes and picks parts.

use std::fmt;
use std::sync::Arc;

use tidegate_core::lending::{LeaseBound, LeaseTerms, LendingError};
use tidegate_core::policy::{Algorithm, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

use crate::diagnostic::FieldError;
use crate::rule::RuleLimit;
use crate::value_syntax::percentage::Percentage;

/// The fewest requests per window of one part of a split limit.
const MIN_REQUESTS_PER_PART: u64 = 10;

/// How the nodes that share a store agree on a rule's counters. In the store of a single process,
/// every rule is exact.
///
/// A rule that is `unlimited` or `deny` has no counter, so it is always exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The store decides each request.
    Exact,
    /// Nodes take units of the counter in advance and spend them locally.
    Leased(Box<LeasedLimit>),
    /// Nodes decide locally and report to the store what they admitted.
    Async {
        /// The time between two reports.
        flush: Micros,
    },
    /// The limit is exact, but divided among several counters.
    Split(SplitLimit),
}

/// A limit whose units nodes take in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedLimit {
    setting: LeasedSetting,
    policy: Policy,
    lending: Policy,
}

/// A limit that is divided among several counters. The parts add up to the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitLimit {
    count: u32,
    parts: Arc<[Policy]>,
}

/// How units of a limit are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeasedSetting {
    /// For the nodes of the region.
    pub(crate) terms: LeaseTerms,
    /// For how long nodes of other regions borrow units, if they do.
    pub(crate) borrow_ttl: Option<Micros>,
}

/// A consistency mode as written in a rule, without the policies that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsistencySetting {
    Exact,
    Leased(LeasedSetting),
    Async { flush: Micros },
    Split { parts: u32 },
}

/// Why a limit does not support a consistency mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsistencyError {
    /// Units of the limit cannot be leased on these terms.
    Lending(LendingError, LeasedSetting),
    /// The parts would be too small.
    TooManyParts {
        /// The most parts that are possible.
        max: u64,
    },
    /// The limit of a part is invalid.
    Part(PolicyError),
}

impl Consistency {
    /// The consistency of a limit.
    pub(crate) fn new(
        setting: ConsistencySetting,
        limit: &RuleLimit,
    ) -> Result<Self, ConsistencyError> {
        let Some(policy) = limit.policy() else { return Ok(Self::Exact) };
        match setting {
            ConsistencySetting::Exact => Ok(Self::Exact),
            ConsistencySetting::Leased(setting) => {
                Ok(Self::Leased(Box::new(LeasedLimit::new(*policy, setting)?)))
            }
            ConsistencySetting::Async { flush } => Ok(Self::Async { flush }),
            ConsistencySetting::Split { parts } => Ok(Self::Split(SplitLimit::new(policy, parts)?)),
        }
    }

    /// The name in rules documents and API responses; `split` for a split limit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.setting().name()
    }

    /// The same mode with another limit, such as that of an override.
    pub(crate) fn for_limit(&self, limit: &RuleLimit) -> Result<Self, ConsistencyError> {
        Self::new(self.setting(), limit)
    }

    /// The same mode with another limit, whose units other regions borrow for up to `ttl`. `None`
    /// if the mode is not `leased`.
    pub(crate) fn lent_to_regions(
        &self,
        limit: &RuleLimit,
        ttl: Micros,
    ) -> Option<Result<Self, ConsistencyError>> {
        let Self::Leased(leased) = self else { return None };
        let setting = LeasedSetting { borrow_ttl: Some(ttl), ..leased.setting };
        Some(Self::new(ConsistencySetting::Leased(setting), limit))
    }

    /// The largest cost that one counter of this mode admits; `None` if that is the whole limit.
    pub(crate) fn max_cost(&self) -> Option<u64> {
        match self {
            Self::Leased(leased) => Some(leased.lending.limit()),
            Self::Split(split) => Some(split.max_cost()),
            Self::Exact | Self::Async { .. } => None,
        }
    }

    pub(crate) const fn setting(&self) -> ConsistencySetting {
        match self {
            Self::Exact => ConsistencySetting::Exact,
            Self::Leased(leased) => ConsistencySetting::Leased(leased.setting),
            Self::Async { flush } => ConsistencySetting::Async { flush: *flush },
            Self::Split(split) => ConsistencySetting::Split { parts: split.count() },
        }
    }

    /// The same mode, with policies that are in effect since an instant.
    pub(crate) fn with_effective_since(self, since: Timestamp) -> Self {
        match self {
            Self::Leased(mut leased) => {
                leased.policy = leased.policy.with_effective_since(since);
                leased.lending = leased.lending.with_effective_since(since);
                Self::Leased(leased)
            }
            Self::Split(SplitLimit { count, parts }) => {
                let parts = parts.iter().map(|part| part.with_effective_since(since)).collect();
                Self::Split(SplitLimit { count, parts })
            }
            other => other,
        }
    }

    /// The most that nodes with a shared store admit of this policy in any interval as long as the
    /// window.
    pub(crate) fn max_in_window(&self, policy: &Policy) -> u64 {
        let exact = policy.max_in_window();
        match self {
            Self::Exact | Self::Split(_) => exact,
            Self::Leased(leased) => leased.max_in_window(),
            // The nodes admit up to one limit more than the store knows of.
            Self::Async { flush } if policy.algorithm().is_bucket() => {
                exact.saturating_add(policy.limit()).saturating_add(refilled(policy, *flush))
            }
            Self::Async { .. } => exact.saturating_mul(2),
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.setting() {
            ConsistencySetting::Exact => Ok(()),
            ConsistencySetting::Leased(LeasedSetting { terms, .. }) => {
                let LeaseTerms { ttl, bound } = terms;
                write!(f, " (ttl {ttl}, bound {})", bound.name())
            }
            ConsistencySetting::Async { flush } => write!(f, " (flush {flush})"),
            ConsistencySetting::Split { parts } => write!(f, " ({parts} parts)"),
        }
    }
}

impl ConsistencySetting {
    /// The name in rules documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased(_) => "leased",
            Self::Async { .. } => "async",
            Self::Split { .. } => "split",
        }
    }
}

impl LeasedSetting {
    /// The terms on which the store lends: to the nodes of its region and to those of others.
    fn longest_terms(&self) -> LeaseTerms {
        let ttl = self.borrow_ttl.map_or(self.terms.ttl, |ttl| ttl.max(self.terms.ttl));
        LeaseTerms { ttl, ..self.terms }
    }

    /// The setting to shorten if the longest lease is too long.
    fn longest_name(&self) -> &'static str {
        if self.longest_terms().ttl > self.terms.ttl { "borrow" } else { "lease" }
    }
}

impl LeasedLimit {
    fn new(policy: Policy, setting: LeasedSetting) -> Result<Self, ConsistencyError> {
        let lending = policy.lending(setting.longest_terms());
        let lending = lending.map_err(|error| ConsistencyError::Lending(error, setting))?;
        Ok(Self { setting, policy, lending })
    }

    /// The terms of the leases within a region.
    #[must_use]
    pub const fn terms(&self) -> LeaseTerms {
        self.setting.terms
    }

    /// The policy of the document. Its algorithm and window identify the counter.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy by which the store counts, so that the fleet stays within the bound.
    #[must_use]
    pub const fn lending_policy(&self) -> &Policy {
        &self.lending
    }

    fn max_in_window(&self) -> u64 {
        let exact = self.policy.max_in_window();
        let LeaseTerms { ttl, bound } = self.setting.longest_terms();
        match (bound, self.policy.algorithm()) {
            // A lease of a fixed window ends with the window.
            (LeaseBound::Exact, _) | (_, Algorithm::FixedWindow | Algorithm::Concurrent) => exact,
            (
                LeaseBound::PlusTtl,
                Algorithm::TokenBucket
                | Algorithm::LeakyBucket(_)
                | Algorithm::SlidingWindowCounter,
            ) => exact.saturating_add(refilled(&self.policy, ttl)),
            // An interval of a window and a ttl can overlap two windows of grants.
            (LeaseBound::PlusTtl, Algorithm::SlidingWindowLog) => exact.saturating_mul(2),
        }
    }
}

impl SplitLimit {
    fn new(policy: &Policy, count: u32) -> Result<Self, ConsistencyError> {
        let (quota, divisor) = (*policy.quota(), u64::from(count.max(1)));
        let max = (quota.requests / MIN_REQUESTS_PER_PART).min(policy.limit());
        if divisor > max {
            return Err(ConsistencyError::TooManyParts { max });
        }
        let part = |index: u64| {
            let share = |whole: u64| whole / divisor + u64::from(index < whole % divisor);
            let (requests, burst) = (share(quota.requests), quota.burst.map(share));
            Policy::new(policy.algorithm(), Quota { requests, burst, ..quota })
                .map(|part| part.with_effective_since(policy.effective_since()))
        };
        let parts = (0..divisor).map(part).collect::<Result<_, _>>();
        Ok(Self { count, parts: parts.map_err(ConsistencyError::Part)? })
    }

    /// The policies of the parts, the larger ones first.
    #[must_use]
    pub fn parts(&self) -> &[Policy] {
        &self.parts
    }

    /// Number of parts.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The largest cost that every part can admit.
    pub(crate) fn max_cost(&self) -> u64 {
        self.parts.iter().map(Policy::limit).min().unwrap_or(0)
    }
}

impl ConsistencyError {
    /// What is wrong with the limit, and what to write instead.
    pub(crate) fn describe(&self, policy: &Policy) -> FieldError {
        self.describe_share(policy, Percentage::ONE_HUNDRED)
    }

    /// The same for the policy of a region that has this share of the limit.
    pub(crate) fn describe_share(&self, policy: &Policy, share: Percentage) -> FieldError {
        match *self {
            Self::Lending(error, setting) => describe_lending_error(error, setting, policy, share),
            Self::TooManyParts { max } => {
                let error = FieldError::new(format!(
                    "each part of a split limit needs {MIN_REQUESTS_PER_PART} requests and a \
                     burst of 1"
                ));
                error.with_hint(match max {
                    0 | 1 => "a larger limit, or leave `split` out".to_owned(),
                    max => format!("`split: {max}` or less, or a larger limit"),
                })
            }
            Self::Part(error) => FieldError::new(format!("one part of the limit: {error}")),
        }
    }
}

fn describe_lending_error(
    error: LendingError,
    setting: LeasedSetting,
    policy: &Policy,
    share: Percentage,
) -> FieldError {
    let (ttl, field) = (setting.longest_terms().ttl, setting.longest_name());
    let wrong = |message: String, hint: String| FieldError::new(message).with_hint(hint);
    match error {
        LendingError::TtlTooLong { max } => {
            let message = format!("units of a window are leased for at most half of it, not {ttl}");
            let hint = match max < tidegate_core::lending::MIN_LEASE_TTL {
                true => "a window of at least 2ms, or `consistency: exact`".to_owned(),
                false => format!("`{field}: {{ ttl: {max} }}` or shorter"),
            };
            wrong(message, hint)
        }
        LendingError::NoRoom { max_ttl } if policy.algorithm().is_bucket() => {
            let refilled = refilled(policy, ttl);
            let message = format!(
                "leases of {ttl} leave no room in a burst of {}: they reserve the {refilled} that \
                 refill in that time",
                policy.limit()
            );
            let shorter = max_ttl.map_or_else(String::new, |max| {
                format!("`{field}: {{ ttl: {max} }}` or shorter, ")
            });
            let burst = share.whole_of(refilled.saturating_add(2));
            let whole = whole_limit_words(share);
            let hint =
                format!("a burst of {burst} or more{whole}, or `lease: {{ bound: plus_ttl }}`");
            wrong(message, format!("{shorter}{hint}"))
        }
        LendingError::NoRoom { .. } => wrong(
            format!("leases leave no room in a limit of {}", policy.limit()),
            format!(
                "a limit of {} or more{}, or `lease: {{ bound: plus_ttl }}`",
                share.whole_of(2),
                whole_limit_words(share)
            ),
        ),
        error @ (LendingError::NotLendable(_)
        | LendingError::TtlTooShort
        | LendingError::Policy(_)) => FieldError::new(error.to_string()),
    }
}

/// Says that a number is not that of one region's share.
fn whole_limit_words(share: Percentage) -> &'static str {
    if share == Percentage::ONE_HUNDRED { "" } else { " for all regions" }
}

/// The number of requests that a policy's rate admits in a time, rounded up.
pub(crate) fn refilled(policy: &Policy, span: Micros) -> u64 {
    let (requests, window) = (policy.quota().requests, policy.quota().window.get());
    let refilled = (u128::from(requests) * u128::from(span.get())).div_ceil(u128::from(window));
    u64::try_from(refilled).unwrap_or(u64::MAX)
}
