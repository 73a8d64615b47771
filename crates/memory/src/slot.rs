//! Forty bytes a key: how a state is packed beside its fingerprint.
//!
//! Logs do not fit; a slot then holds the place of the log in its shard.

use tidegate_core::algorithm::fixed_window::Count;
use tidegate_core::algorithm::sliding_window_counter::Pair;
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::Record;
use tidegate_core::scale::ScaleId;
use tidegate_core::time::Timestamp;

/// One place of a shard's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: Fingerprint,
    words: [u64; 2],
    half: u32,
    /// The scale's number with the kind of tally in the top bits; zero marks an empty slot.
    tag: u32,
}

/// What a slot holds.
pub(crate) enum Held {
    /// The state itself.
    State(State),
    /// The place of a log.
    Log(usize),
}

const KIND_SHIFT: u32 = 29;
const SCALE_MASK: u32 = (1 << KIND_SHIFT) - 1;
const BUCKET: u32 = 0;
const FIXED: u32 = 1;
const COUNTER: u32 = 2;
const LOG: u32 = 3;
const BAN: u32 = 4;

impl Slot {
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.tag == 0
    }

    /// A slot for a state; `log_at` says where its log went, if it is one.
    #[inline]
    pub(crate) fn pack(key: Fingerprint, state: &State, log_at: usize) -> Self {
        let (kind, words, half) = match &state.tally {
            Tally::Bucket(Level { used, at }) => (BUCKET, [*used, at.as_micros()], 0),
            Tally::Fixed(Count { window, count }) => (FIXED, [*window, *count], 0),
            Tally::Counter(Pair { window, current, previous }) => (
                COUNTER,
                [*window, low(*current) | low(*previous) << 32],
                high(*current) | high(*previous) << 16,
            ),
            Tally::Log(_) => (LOG, [log_at as u64, 0], 0),
            Tally::Ban(Record { strikes, bans, since, until }) => {
                (BAN, [since.as_micros(), until.as_micros()], strikes | u32::from(*bans) << 24)
            }
        };
        Self { key, words, half, tag: kind << KIND_SHIFT | state.scale.get() }
    }

    #[inline]
    pub(crate) fn unpack(&self) -> Option<Held> {
        let scale = ScaleId::from_raw(self.tag & SCALE_MASK)?;
        let [a, b] = self.words;
        let tally = match self.tag >> KIND_SHIFT {
            BUCKET => Tally::Bucket(Level { used: a, at: Timestamp::from_micros(b) }),
            FIXED => Tally::Fixed(Count { window: a, count: b }),
            COUNTER => Tally::Counter(Pair {
                window: a,
                current: low(b) | u64::from(self.half & 0xffff) << 32,
                previous: b >> 32 | u64::from(self.half >> 16) << 32,
            }),
            LOG => return Some(Held::Log(usize::try_from(a).unwrap_or(usize::MAX))),
            _ => Tally::Ban(Record {
                strikes: self.half & 0x00ff_ffff,
                bans: (self.half >> 24) as u8,
                since: Timestamp::from_micros(a),
                until: Timestamp::from_micros(b),
            }),
        };
        Some(Held::State(State { scale, tally }))
    }
}

/// A bucket's level, which most slots hold, without unpacking a whole state.
impl Slot {
    #[inline]
    pub(crate) fn level(&self) -> Option<(ScaleId, Level)> {
        // The kind of a bucket is zero, so its tag is the scale's number.
        let scale = ScaleId::from_raw(self.tag).filter(|_| self.tag <= SCALE_MASK)?;
        let [used, at] = self.words;
        Some((scale, Level { used, at: Timestamp::from_micros(at) }))
    }

    #[inline]
    pub(crate) fn set_level(&mut self, Level { used, at }: Level) {
        self.words = [used, at.as_micros()];
    }
}

const fn low(count: u64) -> u64 {
    count & 0xffff_ffff
}

/// Bits 32 to 47: counts stay below 2^48 (`MAX_WINDOW_REQUESTS`, doubled by debt).
const fn high(count: u64) -> u32 {
    (count >> 32) as u32 & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::policy::MAX_WINDOW_REQUESTS;
    use tidegate_core::scale::Scale;
    use tidegate_core::time::Micros;

    #[test]
    fn a_slot_is_forty_bytes() {
        assert_eq!(size_of::<Slot>(), 40);
    }

    #[test]
    fn what_is_packed_comes_back() {
        let scale = Scale::Fixed { window: Micros::new(7) }.intern();
        let most = 2 * MAX_WINDOW_REQUESTS;
        let at = Timestamp::from_micros((1 << 52) - 1);
        for tally in [
            Tally::Bucket(Level { used: (1 << 52) - 1, at }),
            Tally::Fixed(Count { window: 1 << 51, count: most }),
            Tally::Counter(Pair { window: u64::MAX, current: most, previous: 1 }),
            Tally::Counter(Pair { window: 0, current: 3, previous: most - 1 }),
            Tally::Ban(Record { strikes: (1 << 24) - 1, bans: 255, since: at, until: at }),
        ] {
            let state = State { scale, tally };
            let slot = Slot::pack(Fingerprint { hi: 1, lo: 2 }, &state, 0);
            let Some(Held::State(back)) = slot.unpack() else { panic!("not a state") };
            assert_eq!(back, state);
        }
    }
}
