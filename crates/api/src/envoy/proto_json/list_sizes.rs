//! Counts a request's descriptors and entries without storing them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::super::request::{EnvoyRequestError, MAX_DESCRIPTORS, MAX_ENTRIES};
use tidegate_web::json::{JsonObject, JsonRequestError};

/// The sizes of a call's lists.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct RequestListSizes {
    descriptors: Option<DescriptorCounts>,
}

/// The sizes of a list of descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct DescriptorCounts {
    count: usize,
    entries: usize,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct CountedDescriptor {
    entries: Option<EntryCount>,
}

/// Number of entries of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
struct EntryCount(usize);

impl RequestListSizes {
    /// Fails if there are more descriptors or entries than a request may have.
    pub(super) fn check(&self) -> Result<(), JsonRequestError> {
        let DescriptorCounts { count, entries } = self.descriptors.unwrap_or_default();
        let error = match (count > MAX_DESCRIPTORS, entries > MAX_ENTRIES) {
            (true, _) => EnvoyRequestError::TooManyDescriptors,
            (_, true) => EnvoyRequestError::TooManyEntries,
            _ => return Ok(()),
        };
        Err(JsonRequestError::InvalidField {
            field: "descriptors".to_owned(),
            why: error.to_string(),
        })
    }
}

impl<'de> Deserialize<'de> for DescriptorCounts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(DescriptorsVisitor)
    }
}

struct DescriptorsVisitor;

impl<'de> Visitor<'de> for DescriptorsVisitor {
    type Value = DescriptorCounts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of descriptors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DescriptorCounts, A::Error> {
        let mut sizes = DescriptorCounts::default();
        while let Some(JsonObject(CountedDescriptor { entries })) = list.next_element()? {
            sizes.count += 1;
            sizes.entries += entries.unwrap_or_default().0;
        }
        Ok(sizes)
    }
}

impl<'de> Deserialize<'de> for EntryCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = EntryCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EntryCount, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(EntryCount(count))
    }
}
