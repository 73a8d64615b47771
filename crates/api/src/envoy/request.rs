//! Envoy's rate limit request, and the errors that make it undecidable.
//!
//! An error lets the request pass when Envoy is configured to fail open. Everything that Envoy can
//! send is therefore decided:
//! - values of any length that fits the message, valid UTF-8 or not;
//! - descriptors without entries (every action had `skip_if_absent` and its header was missing);
//! - limit overrides without a valid unit (`UNKNOWN` in metadata);
//! - as many descriptors and entries as an Envoy configuration may have.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;
use tidegate_limiter::QueryAction;
use tidegate_rules::{DescriptorPair, InlineLimit};

use super::unit::RateLimitUnit;

/// Maximum number of descriptors in a request. Envoy's configuration determines the actual number;
/// the maximum bounds memory.
pub(crate) const MAX_DESCRIPTORS: usize = 1_024;
/// Maximum number of entries in a request, over all its descriptors.
pub(crate) const MAX_ENTRIES: usize = 16_384;

/// A `RateLimitRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyRequest<'a> {
    pub(crate) domain: Cow<'a, str>,
    pub(crate) descriptors: Vec<EnvoyDescriptor<'a>>,
    pub(crate) hits_addend: u32,
}

/// A `RateLimitDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyDescriptor<'a> {
    pub(crate) entries: SmallVec<[DescriptorPair<'a>; 4]>,
    pub(crate) limit: Option<EnvoyLimitOverride>,
    pub(crate) hits_addend: Option<u64>,
    pub(crate) is_negative_hits: bool,
}

/// A `RateLimitOverride`. The unit is the number received, valid or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyLimitOverride {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: u64,
}

/// Why a request cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EnvoyRequestError {
    /// The bytes are not a valid `RateLimitRequest`.
    Malformed,
    NoDomain,
    NoDescriptors,
    TooManyDescriptors,
    TooManyEntries,
    /// Index of the descriptor and the invalid unit of its limit override.
    Unit(usize, u64),
}

impl EnvoyRequest<'_> {
    /// Checks that the request has a domain and an acceptable number of descriptors and entries.
    pub(crate) fn validate(&self) -> Result<(), EnvoyRequestError> {
        if self.domain.is_empty() {
            return Err(EnvoyRequestError::NoDomain);
        }
        match self.descriptors.len() {
            0 => return Err(EnvoyRequestError::NoDescriptors),
            1..=MAX_DESCRIPTORS => {}
            _ => return Err(EnvoyRequestError::TooManyDescriptors),
        }
        let entries: usize = self.descriptors.iter().map(|one| one.entries.len()).sum();
        if entries > MAX_ENTRIES { Err(EnvoyRequestError::TooManyEntries) } else { Ok(()) }
    }

    /// Checks that every limit override has a valid unit. Used for JSON, where a person can correct
    /// the request. A gRPC request is not rejected: the rules decide as if there were no override.
    pub(crate) fn validate_units(&self) -> Result<(), EnvoyRequestError> {
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            if let Some(limit) = descriptor.limit
                && RateLimitUnit::from_override(limit.unit).is_none()
            {
                return Err(EnvoyRequestError::Unit(at, limit.unit));
            }
        }
        Ok(())
    }

    /// Returns whether any descriptor asks for a refund.
    pub(crate) fn has_refund(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
    }
}

impl EnvoyDescriptor<'_> {
    /// Returns what to do with the counters. The request's `hits_addend` is usually unset, so 0
    /// means 1 there. The descriptor's is present only if intended, so its 0 means a peek.
    pub(super) fn requested_action(&self, call: &EnvoyRequest<'_>) -> QueryAction {
        let hits = self.hits_addend.unwrap_or(u64::from(call.hits_addend.max(1)));
        if self.is_negative_hits { QueryAction::Refund(hits) } else { QueryAction::Charge(hits) }
    }

    /// Returns the limit override, if its unit is valid.
    pub(super) fn inline_limit(&self) -> Option<InlineLimit> {
        let EnvoyLimitOverride { requests_per_unit: requests, unit } = self.limit?;
        Some(InlineLimit { requests, window: RateLimitUnit::from_override(unit)?.window() })
    }
}

impl fmt::Display for EnvoyRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the message is not a valid RateLimitRequest"),
            Self::NoDomain => f.write_str("domain is empty; set `domain` in Envoy's filter"),
            Self::NoDescriptors => f.write_str("no descriptors; send at least 1"),
            Self::TooManyDescriptors => {
                write!(f, "too many descriptors; send at most {MAX_DESCRIPTORS}")
            }
            Self::TooManyEntries => {
                write!(f, "too many descriptor entries; send at most {MAX_ENTRIES} in total")
            }
            Self::Unit(at, unit) => write!(
                f,
                "descriptors[{at}].limit.unit is {unit}; send 1 (SECOND) to 6 (YEAR) with a limit"
            ),
        }
    }
}

impl std::error::Error for EnvoyRequestError {}
