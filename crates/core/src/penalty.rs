//! Escalating bans: a key with repeated refusals is banned for a time that grows with each ban.
//!
//! This module only counts strikes; [`batch`](crate::batch) decides what counts as one.

use crate::algorithm::{State, Tally};
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

/// The largest allowed strike threshold: the Redis store packs strikes into 24 bits.
pub const MAX_STRIKES: u32 = (1 << 24) - 1;

/// When to ban a key, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPolicy {
    strike_threshold: u32,
    strike_window: Micros,
    base_duration: Micros,
    factor: u32,
    max_duration: Micros,
    scale: ScaleId,
}

/// The strikes and bans of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanRecord {
    /// Refusals counted since `since`.
    pub strikes: u32,
    /// Number of bans so far.
    pub bans: u8,
    /// Start of the current strike window.
    pub since: Timestamp,
    /// The end of the last ban.
    pub until: Timestamp,
}

impl BanPolicy {
    /// Bans a key for `base_duration` after `after` refusals within `strike_window`. Each further
    /// ban is `factor` times as long, up to `longest`. A record expires after `longest` or
    /// `strike_window` without a strike, whichever is longer.
    #[must_use]
    pub fn new(
        after: u32,
        strike_window: Micros,
        base_duration: Micros,
        factor: u32,
        longest: Micros,
    ) -> Self {
        let max_duration = longest.max(base_duration);
        let scale = Scale::Ban { forget: max_duration.max(strike_window) }.intern();
        Self {
            strike_threshold: after.clamp(1, MAX_STRIKES),
            strike_window,
            base_duration,
            factor: factor.max(1),
            max_duration,
            scale,
        }
    }

    /// The numbers, for a store that counts outside this process: strike threshold, strike window,
    /// base duration, factor, maximum duration, and how long a record without strikes is kept.
    #[must_use]
    pub fn parameters(&self) -> [u64; 6] {
        let spans = [
            self.strike_window,
            self.base_duration,
            self.max_duration,
            self.max_duration.max(self.strike_window),
        ];
        let [window, base, max, forget] = spans.map(Micros::get);
        [u64::from(self.strike_threshold), window, base, u64::from(self.factor), max, forget]
    }

    /// The scale of its records.
    #[must_use]
    pub const fn scale(&self) -> ScaleId {
        self.scale
    }

    /// How long the key remains banned, or `None` if it is not banned.
    #[must_use]
    pub fn remaining_ban(&self, state: Option<&State>, now: Timestamp) -> Option<Micros> {
        let left = ban_record(state)?.rebased(now).until.since(now).min(self.max_duration);
        (left > Micros::ZERO).then_some(left)
    }

    /// Counts a refusal, and bans the key if it reaches the threshold.
    pub fn strike(&self, state: &mut Option<State>, now: Timestamp) {
        let known = state.as_ref().filter(|state| state.expires_at() > now);
        let mut record =
            ban_record(known).map_or(BanRecord::empty(now), |record| record.rebased(now));
        if record.strikes == 0 || now.since(record.since) >= self.strike_window {
            (record.strikes, record.since) = (0, now);
        }
        record.strikes += 1;
        if record.strikes >= self.strike_threshold {
            record.strikes = 0;
            record.since = now;
            record.until = now.plus(self.ban_duration(record.bans));
            record.bans = record.bans.saturating_add(1);
        }
        *state = Some(State { scale: self.scale, tally: Tally::Ban(record) });
    }

    fn ban_duration(&self, bans: u8) -> Micros {
        let times = u64::from(self.factor).saturating_pow(u32::from(bans));
        Micros::new(self.base_duration.get().saturating_mul(times)).min(self.max_duration)
    }
}

impl BanRecord {
    const fn empty(since: Timestamp) -> Self {
        Self { strikes: 0, bans: 0, since, until: Timestamp::EPOCH }
    }

    /// The record, corrected for a clock that went back: the ban keeps its length, counted from
    /// `now`.
    pub(crate) fn rebased(self, now: Timestamp) -> Self {
        let ahead = self.since.since(now);
        let until = Timestamp::from_micros(self.until.as_micros().saturating_sub(ahead.get()));
        Self { since: self.since.min(now), until, ..self }
    }

    pub(crate) fn expires_at(&self, forget: Micros) -> Timestamp {
        self.since.max(self.until).plus(forget)
    }
}

fn ban_record(state: Option<&State>) -> Option<BanRecord> {
    match state {
        Some(State { tally: Tally::Ban(record), .. }) => Some(*record),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_micros(1_000_000_000);
    const SEC: Micros = Micros::from_secs(1);

    fn policy() -> BanPolicy {
        BanPolicy::new(3, Micros::from_secs(10), SEC, 2, Micros::from_secs(3))
    }

    fn banned_for(state: &Option<State>, now: Timestamp) -> u64 {
        policy().remaining_ban(state.as_ref(), now).map_or(0, Micros::get)
    }

    #[test]
    fn repeated_bans_escalate_to_the_maximum() {
        let (mut state, mut now) = (None, T0);
        for expected in [1_000_000, 2_000_000, 3_000_000, 3_000_000] {
            for _ in 0..2 {
                policy().strike(&mut state, now);
                assert_eq!(banned_for(&state, now), 0);
            }
            policy().strike(&mut state, now);
            assert_eq!(banned_for(&state, now), expected);
            now = now.plus(Micros::new(expected));
            assert_eq!(banned_for(&state, now), 0);
        }
    }

    #[test]
    fn old_strikes_and_clean_records_expire() {
        let mut state = None;
        policy().strike(&mut state, T0);
        policy().strike(&mut state, T0);
        policy().strike(&mut state, T0.plus(Micros::from_secs(10)));
        assert_eq!(banned_for(&state, T0.plus(Micros::from_secs(10))), 0);
        let fresh = state.as_ref().unwrap().expires_at();
        for _ in 0..3 {
            policy().strike(&mut state, fresh);
        }
        assert_eq!(banned_for(&state, fresh), 1_000_000, "the ban has its base duration again");
    }

    #[test]
    fn forgotten_ban_does_not_escalate_the_next() {
        for (early, expected) in [(0, 1_000_000), (1, 2_000_000)] {
            let mut state = None;
            (0..3).for_each(|_| policy().strike(&mut state, T0));
            let forgotten = state.as_ref().unwrap().expires_at();
            assert_eq!(forgotten, T0.plus(Micros::from_secs(1 + 10)));
            let now = forgotten.minus(Micros::new(early));
            (0..3).for_each(|_| policy().strike(&mut state, now));
            assert_eq!(banned_for(&state, now), expected, "{early} us before it is forgotten");
        }
    }

    /// A store outside this process bans by these numbers, and packs strikes into 24 bits.
    #[test]
    fn ban_parameters_are_bounded_and_complete() {
        let [within, lasts, longest] = [10, 1, 3].map(Micros::from_secs);
        let parameters =
            |after, factor| BanPolicy::new(after, within, lasts, factor, longest).parameters();
        let [second, three, ten] = [1_000_000, 3_000_000, 10_000_000];
        assert_eq!(parameters(5, 2), [5, ten, second, 2, three, ten]);
        assert_eq!(parameters(0, 0), [1, ten, second, 1, three, ten]);
        assert_eq!(parameters(u32::MAX, 2), [0xff_ffff, ten, second, 2, three, ten]);
    }

    #[test]
    fn clock_step_back_does_not_extend_ban() {
        let mut state = None;
        for _ in 0..3 {
            policy().strike(&mut state, T0.plus(Micros::from_secs(86_400)));
        }
        assert_eq!(banned_for(&state, T0), 1_000_000);
    }
}
