//! The algorithms behind one face: does a cost fit, add it, give it back, renew it, what is left.
//!
//! Pure and total: the same state, policy, cost and instant give the same answer, and no input
//! panics. An absent state is an untouched one. Nothing here knows where states are kept.

pub mod concurrent;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_window_counter;
pub mod sliding_window_log;
pub mod token_bucket;

use crate::penalty::Record;
use crate::policy::{Leak, Meter, Policy};
use crate::quota::Units;
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

use fixed_window::Count;
use sliding_window_counter::Pair;
use sliding_window_log::Log;
use token_bucket::Level;

/// What is kept of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// How to read the tally.
    pub scale: ScaleId,
    /// What was counted.
    pub tally: Tally,
}

/// What was counted, by kind of algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A token or leaky bucket.
    Bucket(Level),
    /// A fixed window.
    Fixed(Count),
    /// A sliding window counter.
    Counter(Pair),
    /// A sliding window log, of requests or of slots; boxed, because a state is moved about and the others are small.
    Log(Box<Log>),
    /// Strikes and a ban.
    Ban(Record),
}

/// Whether a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits; a queue holds it for `delay` first.
    Now {
        /// How long the request has to wait its turn.
        delay: Micros,
    },
    /// It fits after this long, if nothing else comes, and not a microsecond earlier. Of slots that are
    /// held it is a hint.
    After(Micros),
    /// It is more than the limit holds.
    Never,
}

impl Fit {
    /// It fits and need not wait.
    pub const NOW: Self = Self::Now { delay: Micros::ZERO };

    /// Whether it is admitted.
    #[must_use]
    pub const fn is_now(self) -> bool {
        matches!(self, Self::Now { .. })
    }
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Requests of cost 1 that would pass now.
    pub remaining: u64,
    /// How long until the counter is back to its full limit, if nothing else comes.
    pub reset_after: Micros,
    /// Within this span no more than `remaining` passes, whatever is asked: until one more unit is there, until
    /// the next entry slides out, or until the window ends. Zero where it is not known: slots may be freed at any
    /// time.
    pub next_after: Micros,
}

impl Policy {
    /// Whether `cost` fits at `now`.
    #[inline]
    #[must_use]
    pub fn fit(&self, state: Option<&State>, cost: u64, now: Timestamp) -> Fit {
        if cost > self.limit() {
            return Fit::Never;
        }
        let (quota, tally) = (self.quota(), self.own(state));
        match &self.meter {
            Meter::Bucket { units, leak } => {
                let level = self.level(state, now);
                match leak {
                    Leak::Police => token_bucket::fit(units, level, cost),
                    Leak::Queue => leaky_bucket::fit(units, level, cost),
                }
            }
            Meter::Fixed => fixed_window::fit(quota, Count::at(tally, quota, now), cost, now),
            Meter::Counter(ticks) => sliding_window_counter::fit(
                quota,
                *ticks,
                Pair::at(tally, quota, *ticks, now),
                cost,
                now,
            ),
            Meter::Log => match tally {
                Some(Tally::Log(log)) => log.fit(quota, cost, now),
                _ => Fit::NOW,
            },
            Meter::Slots => concurrent::fit(log(tally), quota, cost, now),
        }
    }

    /// Adds `cost`, whether it fits or not; debt ends at one more full bucket or window.
    #[inline]
    pub fn charge(&self, state: &mut Option<State>, cost: u64, now: Timestamp) {
        let quota = self.quota();
        let tally = match &self.meter {
            Meter::Bucket { units, .. } => {
                Tally::Bucket(self.level(state.as_ref(), now).plus(units, cost))
            }
            Meter::Fixed => {
                let count = Count::at(self.own(state.as_ref()), quota, now);
                Tally::Fixed(count.plus(quota, cost))
            }
            Meter::Counter(ticks) => {
                let pair = Pair::at(self.own(state.as_ref()), quota, *ticks, now);
                Tally::Counter(pair.plus(quota, cost))
            }
            Meter::Log | Meter::Slots => {
                let mut log = match state.take() {
                    Some(State { scale, tally: Tally::Log(log) }) if scale == self.scale => log,
                    _ => Box::default(),
                };
                log.push(quota, self.log_entries().unwrap_or_default(), cost, now);
                Tally::Log(log)
            }
        };
        *state = Some(State { scale: self.scale, tally });
    }

    /// Gives back a `cost` that was charged at `charged_at`: only what time has not given back already.
    pub fn refund(
        &self,
        state: &mut Option<State>,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) {
        let quota = self.quota();
        let Some(kept) = state else { return };
        if !self.meter.is_bucket() && kept.scale != self.scale {
            return;
        }
        let tally = match (&self.meter, &mut kept.tally) {
            // What drained at another rate is not known, and guessing low would give it back twice.
            (Meter::Bucket { .. }, _) if charged_at < self.since() => return,
            (Meter::Bucket { units, .. }, Tally::Bucket(_)) => {
                Tally::Bucket(self.level(Some(kept), now).minus(units, cost, charged_at, now))
            }
            (Meter::Fixed, Tally::Fixed(_)) => {
                let count = Count::at(Some(&kept.tally), quota, now);
                Tally::Fixed(count.minus(quota, cost, charged_at))
            }
            (Meter::Counter(ticks), Tally::Counter(_)) => {
                let pair = Pair::at(Some(&kept.tally), quota, *ticks, now);
                Tally::Counter(pair.minus(quota, cost, charged_at))
            }
            (Meter::Log | Meter::Slots, Tally::Log(log)) => return log.take_back(cost, charged_at),
            _ => return,
        };
        *state = Some(State { scale: self.scale, tally });
    }

    /// Counts slots that were taken or last renewed at `charged_at` from `now` on. What has lapsed
    /// meanwhile is put back, into debt if need be: its holder still holds it. Other policies hold
    /// nothing, and are left alone.
    pub fn renew(
        &self,
        state: &mut Option<State>,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) {
        if self.is_concurrency() {
            self.refund(state, cost, charged_at, now);
            self.charge(state, cost, now);
        }
    }

    /// What is left at `now`.
    #[inline]
    #[must_use]
    pub fn gauge(&self, state: Option<&State>, now: Timestamp) -> Gauge {
        let (quota, tally) = (self.quota(), self.own(state));
        match &self.meter {
            Meter::Bucket { units, .. } => token_bucket::gauge(units, self.level(state, now)),
            Meter::Fixed => fixed_window::gauge(quota, Count::at(tally, quota, now), now),
            Meter::Counter(ticks) => sliding_window_counter::gauge(
                quota,
                *ticks,
                Pair::at(tally, quota, *ticks, now),
                now,
            ),
            Meter::Log => match tally {
                Some(Tally::Log(log)) => log.gauge(quota, now),
                _ => Log::default().gauge(quota, now),
            },
            Meter::Slots => concurrent::gauge(log(tally), quota, now),
        }
    }

    /// Moves whatever lies ahead of `now` to `now`: a clock that went back neither refills nor locks
    /// anyone out for longer than one window or bucket. A level on another scale is told on this
    /// policy's, so that it lasts as long as this policy says.
    #[inline]
    pub fn rebase(&self, state: &mut State, now: Timestamp) {
        let window = || now.as_micros() / self.quota().window.get();
        match &mut state.tally {
            Tally::Bucket(level) if state.scale == self.scale => level.at = level.at.min(now),
            Tally::Bucket(_) => {
                let tally = Tally::Bucket(self.level(Some(state), now));
                *state = State { scale: self.scale, tally };
            }
            Tally::Fixed(count) => count.window = count.window.min(window()),
            Tally::Counter(pair) => pair.rebase(self.quota(), window()),
            Tally::Log(log) => log.rebase(now),
            Tally::Ban(record) => *record = record.rebased(now),
        }
    }

    /// The tally of a window algorithm, if it was counted in windows of this length.
    #[inline]
    fn own<'a>(&self, state: Option<&'a State>) -> Option<&'a Tally> {
        state.filter(|state| state.scale == self.scale).map(|state| &state.tally)
    }

    /// The units of a bucket that polices, if a level on `scale` is one of its own: the common case,
    /// for which a store need not unpack a whole state.
    #[inline]
    pub(crate) fn policing(&self, scale: ScaleId) -> Option<&Units> {
        match &self.meter {
            Meter::Bucket { units, leak: Leak::Police } if scale == self.scale => Some(units),
            _ => None,
        }
    }

    /// The level of a bucket at `now`, read on the scale it was written with and told on this one's.
    #[inline]
    fn level(&self, state: Option<&State>, now: Timestamp) -> Level {
        let Meter::Bucket { units, .. } = &self.meter else { return Level::empty(now) };
        match state {
            Some(State { scale, tally: Tally::Bucket(level) }) if *scale == self.scale => {
                // Capped where the burst may have been lowered, not where it is read: a cap that is
                // applied anew at each reading would make every wait that is told too short.
                level.settled(units, self.since(), now)
            }
            Some(State { scale, tally: Tally::Bucket(level) }) => match scale.resolve() {
                // Stores drop a state that is equal to fresh on its own scale, and this must not
                // depend on whether one has done so yet.
                Scale::Bucket { per_micro, .. } if level.drained(per_micro, now).used == 0 => {
                    Level::empty(now)
                }
                Scale::Bucket { per_micro, per_request } => level
                    .carried(per_micro, per_request, units, self.since(), now)
                    .drained(units.per_micro, now),
                _ => Level::empty(now),
            },
            _ => Level::empty(now),
        }
    }
}

fn log(tally: Option<&Tally>) -> Option<&Log> {
    match tally {
        Some(Tally::Log(log)) => Some(log),
        _ => None,
    }
}

impl State {
    /// From when on the state is equal to an absent one.
    #[must_use]
    pub fn fresh_at(&self) -> Timestamp {
        match (&self.tally, self.scale.resolve()) {
            (Tally::Bucket(level), Scale::Bucket { per_micro, .. }) => {
                level.at.plus(Micros::new(level.used.div_ceil(per_micro.max(1))))
            }
            (Tally::Fixed(count), Scale::Fixed { window }) => count.fresh_at(window),
            (Tally::Counter(pair), Scale::Counter { window }) => pair.fresh_at(window),
            (Tally::Log(log), Scale::Log { window } | Scale::Slots { lease: window }) => {
                log.fresh_at(window)
            }
            (Tally::Ban(record), Scale::Ban { forget }) => record.fresh_at(forget),
            // A tally on a scale of another kind cannot be written; if read, it says nothing.
            _ => Timestamp::EPOCH,
        }
    }
}

#[cfg(test)]
mod tests;
