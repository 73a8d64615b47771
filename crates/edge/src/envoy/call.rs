//! What Envoy asks, and what is wrong with a call that cannot be answered.
//!
//! An error lets a request pass where Envoy is told to fail open, so nothing that a client of Envoy can bring
//! about is one: its values may be of any length that fits the message, and need not even be text.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;
use tidegate_engine::Asked;
use tidegate_rules::{BroughtLimit, Entry};

use super::unit::Unit;

/// The most descriptors of a call. Envoy's configuration says how many there are.
pub(crate) const MAX_DESCRIPTORS: usize = 32;
/// The most entries of a descriptor.
pub(crate) const MAX_ENTRIES: usize = 32;

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
    /// The places of the descriptor and of what is wrong in it.
    NoEntries(usize),
    TooManyEntries(usize),
    EmptyKey(usize),
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
        let mut descriptors = self.descriptors.iter().enumerate();
        descriptors.try_for_each(|(at, descriptor)| descriptor.check(at))
    }

    /// Whether it gives anything back.
    pub(crate) fn gives_back(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
    }
}

impl Descriptor<'_> {
    fn check(&self, at: usize) -> Result<(), Invalid> {
        match self.entries.len() {
            0 => return Err(Invalid::NoEntries(at)),
            1..=MAX_ENTRIES => {}
            _ => return Err(Invalid::TooManyEntries(at)),
        }
        if self.entries.iter().any(|entry| entry.key.is_empty()) {
            return Err(Invalid::EmptyKey(at));
        }
        match self.limit {
            Some(limit) if Unit::of_override(limit.unit).is_none() => {
                Err(Invalid::Unit(at, limit.unit))
            }
            _ => Ok(()),
        }
    }

    /// What is asked. The call's own addend is what Envoy sends normally, and 0 there means 1; the
    /// descriptor's is there only if it is meant, and its 0 is a look.
    pub(super) fn asked(&self, call: &Call<'_>) -> Asked {
        let hits = self.hits_addend.unwrap_or(u64::from(call.hits_addend.max(1)));
        if self.is_negative_hits { Asked::GiveBack(hits) } else { Asked::Charge(hits) }
    }

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
            Self::NoEntries(at) => write!(f, "descriptors[{at}] has no entries"),
            Self::TooManyEntries(at) => {
                write!(f, "descriptors[{at}] has more than {MAX_ENTRIES} entries")
            }
            Self::EmptyKey(at) => write!(f, "an entry of descriptors[{at}] has no key"),
            Self::Unit(at, unit) => write!(
                f,
                "descriptors[{at}].limit.unit is {unit}; send 1 (SECOND) to 6 (YEAR) with a limit"
            ),
        }
    }
}

impl std::error::Error for Invalid {}
