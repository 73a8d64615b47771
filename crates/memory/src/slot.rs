//! Thirty-two bytes a key: how a state is packed beside its fingerprint, never across a cache line.
//!
//! Two numbers of 52 bits and 24 bits that say what they are. What does not fit (logs, bans, counts
//! beyond tens of millions) is kept at the side of its shard, and the slot says where.

use tidegate_core::algorithm::fixed_window::Count;
use tidegate_core::algorithm::sliding_window_counter::Pair;
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::Timestamp;

/// One place of a shard's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(32))]
pub(crate) struct Slot {
    pub(crate) key: Fingerprint,
    /// A number in the upper 52 bits of each, half of the label in the lower 12.
    words: [u64; 2],
}

/// What a slot holds.
pub(crate) enum Held {
    /// The state itself.
    State(State),
    /// The place of a state that is kept at the side.
    Side(usize),
}

const LABEL_BITS: u32 = 12;
const NUMBER_MOST: u64 = (1 << 52) - 1;
const HALF_BITS: u32 = 26;
const HALF_MOST: u64 = (1 << HALF_BITS) - 1;
const SCALE_BITS: u32 = 22;
const SCALE_MOST: u32 = (1 << SCALE_BITS) - 1;

const SIDE: u32 = 0;
const BUCKET: u32 = 1;
const FIXED: u32 = 2;
const COUNTER: u32 = 3;

impl Slot {
    /// A slot for a state, if it fits.
    #[inline]
    pub(crate) fn pack(key: Fingerprint, state: &State) -> Option<Self> {
        let (kind, first, second) = match &state.tally {
            Tally::Bucket(Level { used, at }) => (BUCKET, *used, at.as_micros()),
            Tally::Fixed(Count { window, count }) => (FIXED, *window, *count),
            Tally::Counter(Pair { window, current, previous })
                if *current <= HALF_MOST && *previous <= HALF_MOST =>
            {
                (COUNTER, *window, current << HALF_BITS | previous)
            }
            _ => return None,
        };
        let fits = first <= NUMBER_MOST && second <= NUMBER_MOST && state.scale.get() <= SCALE_MOST;
        fits.then(|| Self::labelled(key, [first, second], kind << SCALE_BITS | state.scale.get()))
    }

    /// A slot for a state that is kept at a place at the side.
    pub(crate) fn beside(key: Fingerprint, place: usize) -> Self {
        Self::labelled(key, [place as u64, 0], SIDE)
    }

    #[inline]
    pub(crate) fn unpack(&self) -> Held {
        let [first, second] = self.numbers();
        let label = self.label();
        let Some(scale) = ScaleId::from_raw(label & SCALE_MOST) else {
            return Held::Side(usize::try_from(first).unwrap_or(usize::MAX));
        };
        let tally = match label >> SCALE_BITS {
            BUCKET => Tally::Bucket(Level { used: first, at: Timestamp::from_micros(second) }),
            FIXED => Tally::Fixed(Count { window: first, count: second }),
            _ => Tally::Counter(Pair {
                window: first,
                current: second >> HALF_BITS,
                previous: second & HALF_MOST,
            }),
        };
        Held::State(State { scale, tally })
    }

    /// A bucket's level, which most slots hold, without unpacking a whole state.
    #[inline]
    pub(crate) fn level(&self) -> Option<(ScaleId, Level)> {
        let label = self.label();
        if label >> SCALE_BITS != BUCKET {
            return None;
        }
        let [used, at] = self.numbers();
        let scale = ScaleId::from_raw(label & SCALE_MOST)?;
        Some((scale, Level { used, at: Timestamp::from_micros(at) }))
    }

    /// Replaces the level of a bucket's slot, if the new one fits.
    #[inline]
    pub(crate) fn set_level(&mut self, Level { used, at }: Level) -> bool {
        let fits = used <= NUMBER_MOST && at.as_micros() <= NUMBER_MOST;
        if fits {
            *self = Self::labelled(self.key, [used, at.as_micros()], self.label());
        }
        fits
    }

    #[inline]
    fn labelled(key: Fingerprint, [first, second]: [u64; 2], label: u32) -> Self {
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
    use tidegate_core::penalty::Record;
    use tidegate_core::scale::Scale;
    use tidegate_core::time::Micros;

    #[test]
    fn a_slot_is_thirty_two_bytes_and_never_crosses_a_line() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (32, 32));
    }

    #[test]
    fn what_is_packed_comes_back_and_what_does_not_fit_is_not_packed() {
        let scale = Scale::Fixed { window: Micros::new(7) }.intern();
        let (key, last) = (Fingerprint { hi: 1, lo: 2 }, Timestamp::from_micros(NUMBER_MOST));
        let late = last.plus(Micros::new(1));
        let record = Record { strikes: 1, bans: 1, since: last, until: last };
        let pair = |current, previous| Tally::Counter(Pair { window: 9, current, previous });
        for (tally, fits) in [
            (Tally::Bucket(Level { used: NUMBER_MOST, at: last }), true),
            (Tally::Bucket(Level { used: 0, at: Timestamp::EPOCH }), true),
            (Tally::Bucket(Level { used: 1, at: late }), false),
            (Tally::Fixed(Count { window: NUMBER_MOST, count: (1 << 48) - 1 }), true),
            (Tally::Fixed(Count { window: u64::MAX, count: 1 }), false),
            (pair(HALF_MOST, 1), true),
            (pair(1, HALF_MOST), true),
            (pair(HALF_MOST + 1, 1), false),
            (pair(1, HALF_MOST + 1), false),
            (Tally::Log(Box::default()), false),
            (Tally::Ban(record), false),
        ] {
            let state = State { scale, tally };
            let slot = Slot::pack(key, &state);
            assert_eq!(slot.is_some(), fits, "{state:?}");
            if let Some(slot) = slot {
                let Held::State(back) = slot.unpack() else { panic!("not a state") };
                assert_eq!((back, slot.key), (state, key));
            }
        }
    }

    #[test]
    fn a_slot_says_where_its_state_is() {
        let slot = Slot::beside(Fingerprint { hi: 1, lo: 2 }, 77);
        assert!(matches!(slot.unpack(), Held::Side(77)) && slot.level().is_none());
    }
}
