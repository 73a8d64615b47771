//! What a stored state is measured in, interned to four bytes.
//!
//! A state outlives the rule set it was written under, so it says how to read it: the units of a
//! bucket, the window of a counter. A table of ten million states cannot spend sixteen bytes each on
//! that, so scales are interned for the life of the process. Interning is invisible: a decision
//! depends on the scale, never on its number.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::time::Micros;

/// How a stored state is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// `used` counts units: a request costs `per_request` of them, a microsecond drains `per_micro`.
    Bucket {
        /// Units that drain in a microsecond (`p`).
        per_micro: u64,
        /// Units that a request of cost 1 takes (`q`).
        per_request: u64,
    },
    /// Counts of requests in windows of this length, aligned to the epoch.
    Fixed {
        /// The window.
        window: Micros,
    },
    /// Counts of requests in this window and the one before.
    Counter {
        /// The window.
        window: Micros,
    },
    /// Requests with their times.
    Log {
        /// The window.
        window: Micros,
    },
    /// Held slots with the times they were taken or last renewed.
    Slots {
        /// How long one that is not renewed is held.
        lease: Micros,
    },
    /// Strikes and the end of a ban; all spans are in the state's policy.
    Ban {
        /// How long a clean record takes to be forgotten.
        forget: Micros,
    },
}

/// The number of an interned [`Scale`]; never zero, so that a table can mark an empty slot with zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaleId(NonZeroU32);

#[derive(Default)]
struct Registry {
    scales: Vec<Scale>,
    ids: HashMap<Scale, ScaleId>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Scale {
    /// The number of this scale, the same for the life of the process.
    #[must_use]
    pub fn intern(self) -> ScaleId {
        let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = registry.ids.get(&self) {
            return *id;
        }
        registry.scales.push(self);
        // 2^32 distinct scales would need 64 GiB of rules first.
        let count = u32::try_from(registry.scales.len()).unwrap_or(u32::MAX);
        let id = ScaleId(NonZeroU32::new(count).unwrap_or(NonZeroU32::MAX));
        registry.ids.insert(self, id);
        id
    }
}

impl ScaleId {
    /// The scale behind the number.
    #[must_use]
    pub fn resolve(self) -> Scale {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        registry.scales[self.0.get() as usize - 1]
    }

    /// The number itself, for packing into a table slot.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The id behind a number that [`get`](Self::get) gave out; zero is no id.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        NonZeroU32::new(raw).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interning_is_stable_and_reversible() {
        let scale = Scale::Bucket { per_micro: 3, per_request: 7_000_001 };
        let id = scale.intern();
        assert_eq!(id, scale.intern());
        assert_eq!(id.resolve(), scale);
        assert_ne!(Scale::Fixed { window: Micros::new(5) }.intern(), id);
    }
}
