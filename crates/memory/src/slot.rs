//! Table slots: a fingerprint and a packed state in 32 bytes, which never cross a cache line.
//!
//! A packed state is two 52-bit numbers and a 24-bit label that says what they are. States that do
//! not fit (logs, bans, counts beyond tens of millions) go to the shard's spill area, and the slot
//! holds their index there.

use tidegate_core::algorithm::fixed_window::WindowCount;
use tidegate_core::algorithm::sliding_window_counter::WindowPair;
use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::Timestamp;

/// One slot of a shard's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(32))]
pub(crate) struct TableSlot {
    pub(crate) key: Fingerprint,
    /// Each word has a number in the upper 52 bits and half of the label in the lower 12.
    words: [u64; 2],
}

/// What a slot holds.
pub(crate) enum SlotContent {
    /// The state, packed in the slot.
    State(State),
    /// The index of the state in the spill area.
    Spilled(usize),
}

const LABEL_BITS: u32 = 12;
const MAX_NUMBER: u64 = (1 << 52) - 1;
const HALF_BITS: u32 = 26;
const MAX_HALF: u64 = (1 << HALF_BITS) - 1;
const SCALE_BITS: u32 = 22;
const MAX_SCALE: u32 = (1 << SCALE_BITS) - 1;

const SPILLED: u32 = 0;
const BUCKET: u32 = 1;
const FIXED: u32 = 2;
const COUNTER: u32 = 3;

impl TableSlot {
    /// Packs a state into a slot, or returns `None` if it does not fit.
    #[inline]
    pub(crate) fn pack(key: Fingerprint, state: &State) -> Option<Self> {
        let (kind, first, second) = match &state.tally {
            Tally::Bucket(BucketLevel { used, at }) => (BUCKET, *used, at.as_micros()),
            Tally::Fixed(WindowCount { window, count }) => (FIXED, *window, *count),
            Tally::Counter(WindowPair { window, current, previous })
                if *current <= MAX_HALF && *previous <= MAX_HALF =>
            {
                (COUNTER, *window, current << HALF_BITS | previous)
            }
            _ => return None,
        };
        let fits = first <= MAX_NUMBER && second <= MAX_NUMBER && state.scale.get() <= MAX_SCALE;
        fits.then(|| Self::with_label(key, [first, second], kind << SCALE_BITS | state.scale.get()))
    }

    /// A slot for a state at an index of the spill area.
    pub(crate) fn spilled(key: Fingerprint, index: usize) -> Self {
        Self::with_label(key, [index as u64, 0], SPILLED)
    }

    #[inline]
    pub(crate) fn unpack(&self) -> SlotContent {
        let [first, second] = self.numbers();
        let label = self.label();
        let Some(scale) = ScaleId::from_raw(label & MAX_SCALE) else {
            return SlotContent::Spilled(usize::try_from(first).unwrap_or(usize::MAX));
        };
        let tally = match label >> SCALE_BITS {
            BUCKET => {
                Tally::Bucket(BucketLevel { used: first, at: Timestamp::from_micros(second) })
            }
            FIXED => Tally::Fixed(WindowCount { window: first, count: second }),
            _ => Tally::Counter(WindowPair {
                window: first,
                current: second >> HALF_BITS,
                previous: second & MAX_HALF,
            }),
        };
        SlotContent::State(State { scale, tally })
    }

    /// The level of a bucket, without unpacking a whole state. Most slots hold a bucket.
    #[inline]
    pub(crate) fn level(&self) -> Option<(ScaleId, BucketLevel)> {
        let label = self.label();
        if label >> SCALE_BITS != BUCKET {
            return None;
        }
        let [used, at] = self.numbers();
        let scale = ScaleId::from_raw(label & MAX_SCALE)?;
        Some((scale, BucketLevel { used, at: Timestamp::from_micros(at) }))
    }

    /// Replaces the level of a bucket. Returns false if the new level does not fit.
    #[inline]
    pub(crate) fn set_level(&mut self, BucketLevel { used, at }: BucketLevel) -> bool {
        let fits = used <= MAX_NUMBER && at.as_micros() <= MAX_NUMBER;
        if fits {
            *self = Self::with_label(self.key, [used, at.as_micros()], self.label());
        }
        fits
    }

    #[inline]
    fn with_label(key: Fingerprint, [first, second]: [u64; 2], label: u32) -> Self {
        let (high, low) = (label >> LABEL_BITS, label & ((1 << LABEL_BITS) - 1));
        let words = [first << LABEL_BITS | u64::from(high), second << LABEL_BITS | u64::from(low)];
        Self { key, words }
    }

    #[inline]
    const fn numbers(&self) -> [u64; 2] {
        [self.words[0] >> LABEL_BITS, self.words[1] >> LABEL_BITS]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "twelve bits each")]
    const fn label(&self) -> u32 {
        let mask = (1 << LABEL_BITS) - 1;
        ((self.words[0] & mask) as u32) << LABEL_BITS | (self.words[1] & mask) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::penalty::BanRecord;
    use tidegate_core::scale::Scale;
    use tidegate_core::time::Micros;

    #[test]
    fn slot_is_32_bytes_and_aligned() {
        assert_eq!((size_of::<TableSlot>(), align_of::<TableSlot>()), (32, 32));
    }

    #[test]
    fn slot_packs_only_states_that_fit() {
        let scale = Scale::Fixed { window: Micros::new(7) }.intern();
        let (key, last) = (Fingerprint { hi: 1, lo: 2 }, Timestamp::from_micros(MAX_NUMBER));
        let late = last.plus(Micros::new(1));
        let record = BanRecord { strikes: 1, bans: 1, since: last, until: last };
        let pair = |current, previous| Tally::Counter(WindowPair { window: 9, current, previous });
        for (tally, fits) in [
            (Tally::Bucket(BucketLevel { used: MAX_NUMBER, at: last }), true),
            (Tally::Bucket(BucketLevel { used: 0, at: Timestamp::EPOCH }), true),
            (Tally::Bucket(BucketLevel { used: 1, at: late }), false),
            (Tally::Fixed(WindowCount { window: MAX_NUMBER, count: (1 << 48) - 1 }), true),
            (Tally::Fixed(WindowCount { window: u64::MAX, count: 1 }), false),
            (pair(MAX_HALF, 1), true),
            (pair(1, MAX_HALF), true),
            (pair(MAX_HALF + 1, 1), false),
            (pair(1, MAX_HALF + 1), false),
            (Tally::Log(Box::default()), false),
            (Tally::Ban(record), false),
        ] {
            let state = State { scale, tally };
            let slot = TableSlot::pack(key, &state);
            assert_eq!(slot.is_some(), fits, "{state:?}");
            if let Some(slot) = slot {
                let SlotContent::State(unpacked) = slot.unpack() else {
                    panic!("the slot does not hold the state: {state:?}")
                };
                assert_eq!((unpacked, slot.key), (state, key));
            }
        }
    }

    #[test]
    fn spilled_slot_holds_spill_index() {
        let slot = TableSlot::spilled(Fingerprint { hi: 1, lo: 2 }, 77);
        assert!(matches!(slot.unpack(), SlotContent::Spilled(77)) && slot.level().is_none());
    }
}
