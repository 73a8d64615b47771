//! How many descriptors and entries a call has, counted without keeping any of them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::super::call::{Invalid, MAX_DESCRIPTORS, MAX_ENTRIES};
use crate::json::{Malformed, Object};

/// The sizes of a call's lists.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Sizes {
    descriptors: Option<Descriptors>,
}

/// The sizes of a list of descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct Descriptors {
    count: usize,
    entries: usize,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Descriptor {
    entries: Option<Entries>,
}

/// How many entries there are.
#[derive(Clone, Copy, Debug, Default)]
struct Entries(usize);

impl Sizes {
    /// Looks whether there are more than a call may have.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        let Descriptors { count, entries } = self.descriptors.unwrap_or_default();
        let wrong = match (count > MAX_DESCRIPTORS, entries > MAX_ENTRIES) {
            (true, _) => Invalid::TooManyDescriptors,
            (_, true) => Invalid::TooManyEntries,
            _ => return Ok(()),
        };
        Err(Malformed::Field { field: "descriptors".to_owned(), why: wrong.to_string() })
    }
}

impl<'de> Deserialize<'de> for Descriptors {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(DescriptorsVisitor)
    }
}

struct DescriptorsVisitor;

impl<'de> Visitor<'de> for DescriptorsVisitor {
    type Value = Descriptors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of descriptors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Descriptors, A::Error> {
        let mut sizes = Descriptors::default();
        while let Some(Object(Descriptor { entries })) = list.next_element()? {
            sizes.count += 1;
            sizes.entries += entries.unwrap_or_default().0;
        }
        Ok(sizes)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Entries(count))
    }
}
