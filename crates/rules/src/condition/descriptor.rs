//! Descriptor conditions: a rule matches exactly these entries, in this order.
//!
//! This module tests one rule. If several rules match, the tree of all descriptors
//! (`index::descriptors`) selects the most specific one.

use std::fmt;

use super::Glob;
use crate::facts::DescriptorPair;

/// Maximum entries of a descriptor in a rule, which is more than a call may have. The descriptor
/// tree is one level deep per entry.
pub(crate) const MAX_ENTRIES: usize = 32;

/// The expected entries, one for each entry of the request's descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorMatcher(pub(crate) Box<[EntryMatcher]>);

/// Matches one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryMatcher {
    pub(crate) key: Box<str>,
    pub(crate) value: ValueMatcher,
    /// Whether all matching values share one counter instead of having one each.
    pub(crate) shared: bool,
}

/// Matches the value of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ValueMatcher {
    Any,
    Exact(Box<str>),
    Glob(Glob),
}

impl DescriptorMatcher {
    pub(crate) fn matches(&self, entries: &[DescriptorPair<'_>]) -> bool {
        let mut pairs = self.0.iter().zip(entries);
        self.0.len() == entries.len() && pairs.all(|(test, entry)| test.matches(entry))
    }

    /// Bit mask of the entries whose values share a counter.
    pub(crate) fn shared_mask(&self) -> u32 {
        let shared = self.0.iter().enumerate().filter(|(_, entry)| entry.shared);
        shared.fold(0, |bits, (at, _)| bits | 1_u32.checked_shl(bit_index(at)).unwrap_or(0))
    }

    /// Whether both have the same position in the descriptor tree.
    pub(crate) fn has_same_entries(&self, other: &Self) -> bool {
        let same = |(one, two): (&EntryMatcher, &EntryMatcher)| {
            (&one.key, &one.value) == (&two.key, &two.value)
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

/// `MAX_ENTRIES` is the number of bits in a `u32`, so the index always fits.
fn bit_index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl EntryMatcher {
    fn matches(&self, entry: &DescriptorPair<'_>) -> bool {
        *self.key == *entry.key && self.value.accepts(&entry.value)
    }
}

impl ValueMatcher {
    pub(crate) fn parse(text: &str) -> Self {
        Glob::parse(text).map_or_else(|| Self::Exact(text.into()), Self::Glob)
    }

    /// The value, if exactly one matches.
    pub(crate) fn exact_value(&self) -> Option<&str> {
        match self {
            Self::Exact(exact) => Some(exact),
            Self::Any | Self::Glob(_) => None,
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::Glob(glob) => glob.matches(value),
        }
    }
}

impl fmt::Display for DescriptorMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            write!(f, "{}{entry}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Quotes keys and values with special characters, so that different rules never have equal text.
impl fmt::Display for EntryMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| match text.contains(['=', ',', '"', ' ']) {
            true => format!("{text:?}"),
            false => text.to_owned(),
        };
        f.write_str(&quoted(&self.key))?;
        match &self.value {
            ValueMatcher::Any => {}
            ValueMatcher::Exact(text) => write!(f, "={}", quoted(text))?,
            ValueMatcher::Glob(glob) => write!(f, "={}", quoted(&glob.to_string()))?,
        }
        f.write_str(if self.shared { " shared" } else { "" })
    }
}
