//! Escalating bans: after so many refusals a key is refused outright for a while, longer each time.
//!
//! This counts strikes only; what a strike is, the batch decides.

use crate::algorithm::{State, Tally};
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

/// The most refusals that a ban may wait for (a table packs 24 bits).
pub const MAX_STRIKES: u32 = (1 << 24) - 1;

/// When to ban, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPolicy {
    after: u32,
    within: Micros,
    lasts: Micros,
    factor: u32,
    longest: Micros,
    scale: ScaleId,
}

/// The strikes against a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Refusals since `since`.
    pub strikes: u32,
    /// Bans so far.
    pub bans: u8,
    /// When the strikes began to count.
    pub since: Timestamp,
    /// The end of the last ban.
    pub until: Timestamp,
}

impl BanPolicy {
    /// A ban of `lasts` after `after` refusals inside `within`; each further ban is `factor` times as
    /// long, up to `longest`. A record is forgotten when it was clean for `longest` (or `within`).
    #[must_use]
    pub fn new(after: u32, within: Micros, lasts: Micros, factor: u32, longest: Micros) -> Self {
        let longest = longest.max(lasts);
        let scale = Scale::Ban { forget: longest.max(within) }.intern();
        Self {
            after: after.clamp(1, MAX_STRIKES),
            within,
            lasts,
            factor: factor.max(1),
            longest,
            scale,
        }
    }

    /// The numbers, for a store that counts elsewhere: refusals, within, lasts, factor, longest, and
    /// how long a clean record takes to be forgotten.
    #[must_use]
    pub fn numbers(&self) -> [u64; 6] {
        let spans = [self.within, self.lasts, self.longest, self.longest.max(self.within)];
        let [within, lasts, longest, forget] = spans.map(Micros::get);
        [u64::from(self.after), within, lasts, u64::from(self.factor), longest, forget]
    }

    /// The scale that its records are written on.
    #[must_use]
    pub const fn scale(&self) -> ScaleId {
        self.scale
    }

    /// How long the key is still banned, if it is.
    #[must_use]
    pub fn banned(&self, state: Option<&State>, now: Timestamp) -> Option<Micros> {
        let left = record(state)?.rebased(now).until.since(now).min(self.longest);
        (left > Micros::ZERO).then_some(left)
    }

    /// Counts a refusal.
    pub fn strike(&self, state: &mut Option<State>, now: Timestamp) {
        let known = state.as_ref().filter(|state| state.fresh_at() > now);
        let mut record = record(known).map_or(Record::clean(now), |record| record.rebased(now));
        if record.strikes == 0 || now.since(record.since) >= self.within {
            (record.strikes, record.since) = (0, now);
        }
        record.strikes += 1;
        if record.strikes >= self.after {
            record.strikes = 0;
            record.since = now;
            record.until = now.plus(self.length(record.bans));
            record.bans = record.bans.saturating_add(1);
        }
        *state = Some(State { scale: self.scale, tally: Tally::Ban(record) });
    }

    fn length(&self, bans: u8) -> Micros {
        let times = u64::from(self.factor).saturating_pow(u32::from(bans));
        Micros::new(self.lasts.get().saturating_mul(times)).min(self.longest)
    }
}

impl Record {
    const fn clean(since: Timestamp) -> Self {
        Self { strikes: 0, bans: 0, since, until: Timestamp::EPOCH }
    }

    /// The record after a clock that went back: the ban keeps its length, counted from `now`.
    pub(crate) fn rebased(self, now: Timestamp) -> Self {
        let ahead = self.since.since(now);
        let until = Timestamp::from_micros(self.until.as_micros().saturating_sub(ahead.get()));
        Self { since: self.since.min(now), until, ..self }
    }

    pub(crate) fn fresh_at(&self, forget: Micros) -> Timestamp {
        self.since.max(self.until).plus(forget)
    }
}

fn record(state: Option<&State>) -> Option<Record> {
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
        policy().banned(state.as_ref(), now).map_or(0, Micros::get)
    }

    #[test]
    fn the_third_strike_bans_and_each_ban_is_longer_up_to_the_longest() {
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
    fn strikes_outside_the_period_do_not_add_up_and_a_clean_record_is_forgotten() {
        let mut state = None;
        policy().strike(&mut state, T0);
        policy().strike(&mut state, T0);
        policy().strike(&mut state, T0.plus(Micros::from_secs(10)));
        assert_eq!(banned_for(&state, T0.plus(Micros::from_secs(10))), 0);
        let fresh = state.as_ref().unwrap().fresh_at();
        for _ in 0..3 {
            policy().strike(&mut state, fresh);
        }
        assert_eq!(banned_for(&state, fresh), 1_000_000, "the first ban again");
    }

    #[test]
    fn a_clock_that_goes_back_a_day_bans_for_no_longer() {
        let mut state = None;
        for _ in 0..3 {
            policy().strike(&mut state, T0.plus(Micros::from_secs(86_400)));
        }
        assert_eq!(banned_for(&state, T0), 1_000_000);
    }
}
