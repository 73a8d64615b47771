//! What Envoy asks, and what is wrong with a call that cannot be answered.
//!
//! An error lets a request pass where Envoy is set to fail open, so whatever Envoy can send is decided: values of
//! any length that fits the message, which need not be text; a descriptor without entries (every action had
//! `skip_if_absent` and its header was missing); a limit in a unit that is none (`UNKNOWN` in metadata); and as many
//! descriptors and entries as a configuration may have.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;
use tidegate_engine::Asked;
use tidegate_rules::{BroughtLimit, Entry};

use super::unit::Unit;

/// The most descriptors of a call. Envoy's configuration says how many there are; the cap bounds memory.
pub(crate) const MAX_DESCRIPTORS: usize = 1_024;
/// The most entries of a call, in all its descriptors together.
pub(crate) const MAX_ENTRIES: usize = 16_384;

/// A `RateLimitRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) domain: Cow<'a, str>,
    pub(crate) descriptors: Vec<Descriptor<'a>>,
    pub(crate) hits_addend: u32,
}

/// A `RateLimitDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor<'a> {
    pub(crate) entries: SmallVec<[Entry<'a>; 4]>,
    pub(crate) limit: Option<Override>,
    pub(crate) hits_addend: Option<u64>,
    pub(crate) is_negative_hits: bool,
}

/// A `RateLimitOverride`, its unit as it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: u64,
}

/// Why a call cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// It is no such message at all.
    Malformed,
    NoDomain,
    NoDescriptors,
    TooManyDescriptors,
    TooManyEntries,
    /// The place of the descriptor and the unit of its limit.
    Unit(usize, u64),
}

impl Call<'_> {
    /// Looks for what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.domain.is_empty() {
            return Err(Invalid::NoDomain);
        }
        match self.descriptors.len() {
            0 => return Err(Invalid::NoDescriptors),
            1..=MAX_DESCRIPTORS => {}
            _ => return Err(Invalid::TooManyDescriptors),
        }
        let entries: usize = self.descriptors.iter().map(|one| one.entries.len()).sum();
        if entries > MAX_ENTRIES { Err(Invalid::TooManyEntries) } else { Ok(()) }
    }

    /// Looks for a limit in a unit that is none, which a person who writes the call can correct. Of Envoy such a
    /// call is decided by the rules, as if the limit were not there.
    pub(crate) fn check_units(&self) -> Result<(), Invalid> {
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            if let Some(limit) = descriptor.limit
                && Unit::of_override(limit.unit).is_none()
            {
                return Err(Invalid::Unit(at, limit.unit));
            }
        }
        Ok(())
    }

    /// Whether it gives anything back.
    pub(crate) fn gives_back(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
    }
}

impl Descriptor<'_> {
    /// What is asked. The call's own addend is what Envoy sends normally, and 0 there means 1; the
    /// descriptor's is there only if it is meant, and its 0 is a look.
    pub(super) fn asked(&self, call: &Call<'_>) -> Asked {
        let hits = self.hits_addend.unwrap_or(u64::from(call.hits_addend.max(1)));
        if self.is_negative_hits { Asked::GiveBack(hits) } else { Asked::Charge(hits) }
    }

    /// The unit of the limit that it brings, if that admits nothing.
    pub(super) fn shut(&self) -> Option<Unit> {
        self.limit
            .filter(|limit| limit.requests_per_unit == 0)
            .and_then(|limit| Unit::of_override(limit.unit))
    }

    /// The limit that it brings, if that is in a unit.
    pub(super) fn brought(&self) -> Option<BroughtLimit> {
        let Override { requests_per_unit: requests, unit } = self.limit?;
        Some(BroughtLimit { requests, window: Unit::of_override(unit)?.window() })
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the message is no RateLimitRequest"),
            Self::NoDomain => f.write_str("domain is empty; set `domain` in Envoy's filter"),
            Self::NoDescriptors => f.write_str("there are no descriptors, at least 1 is needed"),
            Self::TooManyDescriptors => {
                write!(f, "there are more than {MAX_DESCRIPTORS} descriptors")
            }
            Self::TooManyEntries => {
                write!(f, "the descriptors have more than {MAX_ENTRIES} entries together")
            }
            Self::Unit(at, unit) => write!(
                f,
                "descriptors[{at}].limit.unit is {unit}; send 1 (SECOND) to 6 (YEAR) with a limit"
            ),
        }
    }
}

impl std::error::Error for Invalid {}
