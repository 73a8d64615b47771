//! Scales: the units that a stored state is measured in, interned to four bytes.
//!
//! A state outlives the rule set it was written under, so it records how to read it: the units of a
//! bucket or the window of a counter. In a table of ten million states, sixteen bytes each would be
//! too much, so scales are interned for the life of the process. Decisions depend on the scale,
//! never on its ID.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::time::Micros;

/// The units of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// `used` counts units: a request takes `per_request` of them, a microsecond drains
    /// `per_micro`.
    Bucket {
        /// Units drained per microsecond (`p`).
        per_micro: u64,
        /// Units that a request of cost 1 takes (`q`).
        per_request: u64,
    },
    /// Counts the requests of a window aligned to the epoch.
    Fixed {
        /// The window.
        window: Micros,
    },
    /// Counts the requests of the current and the previous window.
    Counter {
        /// The window.
        window: Micros,
    },
    /// Logs each request with its time.
    Log {
        /// The window.
        window: Micros,
    },
    /// Logs each held slot with the time it was acquired or last renewed.
    Slots {
        /// How long a slot is held without renewal.
        hold: Micros,
    },
    /// Strikes and the end of a ban. The other durations are in the [`BanPolicy`].
    ///
    /// [`BanPolicy`]: crate::penalty::BanPolicy
    Ban {
        /// How long a record without strikes is kept.
        forget: Micros,
    },
}

/// The ID of an interned [`Scale`]. Never zero, so that a table slot can use zero to mean "no
/// scale".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaleId(NonZeroU32);

#[derive(Default)]
struct ScaleRegistry {
    scales: Vec<Scale>,
    ids: HashMap<Scale, ScaleId>,
}

static REGISTRY: LazyLock<RwLock<ScaleRegistry>> = LazyLock::new(RwLock::default);

impl Scale {
    /// The ID of this scale, which stays the same for the life of the process.
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
    /// The scale with this ID.
    #[must_use]
    pub fn resolve(self) -> Scale {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        registry.scales[self.0.get() as usize - 1]
    }

    /// The ID as a number, for packing into a table slot.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The ID for a number that [`get`](Self::get) returned, or `None` for zero.
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
        let bucket = Scale::Bucket { per_micro: 3, per_request: 7_000_001 };
        let window = Scale::Fixed { window: Micros::new(5) };
        for scale in [bucket, window] {
            let id = scale.intern();
            assert_eq!(id, scale.intern());
            assert_eq!(id.resolve(), scale);
            assert_eq!(ScaleId::from_raw(id.get()), Some(id));
        }
        assert_ne!(bucket.intern(), window.intern());
        assert_eq!(ScaleId::from_raw(0), None);
    }
}
