//! The algorithms behind one interface: check whether a cost fits, charge it, refund it, renew it,
//! and report the remaining quota.
//!
//! All functions are pure and total: the result depends only on state, policy, cost and instant,
//! and no input panics. An absent state (`None`) is an unused counter. Nothing here knows where
//! states are stored.

pub mod concurrent;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_window_counter;
pub mod sliding_window_log;
pub mod token_bucket;

use crate::penalty::BanRecord;
use crate::policy::{LeakMode, Meter, Policy};
use crate::quota::Units;
use crate::scale::{Scale, ScaleId};
use crate::time::{Micros, Timestamp};

use fixed_window::WindowCount;
use sliding_window_counter::WindowPair;
use sliding_window_log::WindowLog;
use token_bucket::BucketLevel;

/// The stored state of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The units of the tally.
    pub scale: ScaleId,
    /// The count.
    pub tally: Tally,
}

/// The count, by kind of algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A token or leaky bucket.
    Bucket(BucketLevel),
    /// A fixed window.
    Fixed(WindowCount),
    /// A sliding window counter.
    Counter(WindowPair),
    /// A sliding window log of requests or slots. Boxed to keep `State` small, because states are
    /// moved often.
    Log(Box<WindowLog>),
    /// Strikes and a ban.
    Ban(BanRecord),
}

/// Whether a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits. A queueing rule delays the request by `delay`.
    Now {
        /// How long to delay the request.
        delay: Micros,
    },
    /// It fits after this long and not a microsecond earlier, provided that nothing else is charged
    /// first. For concurrency limits this is only a hint.
    After(Micros),
    /// The cost exceeds the whole limit.
    Never,
}

impl Fit {
    /// It fits without delay.
    pub const NOW: Self = Self::Now { delay: Micros::ZERO };

    /// Whether the cost fits now.
    #[must_use]
    pub const fn is_now(self) -> bool {
        matches!(self, Self::Now { .. })
    }
}

/// The remaining quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Number of requests of cost 1 that would pass now.
    pub remaining: u64,
    /// Time until the counter is back to its full limit, if nothing else is charged.
    pub reset_after: Micros,
    /// Within this span no more than `remaining` can pass. It ends when enough has drained for one
    /// more request, when the next entry leaves the window, or when the window ends. Zero if it is
    /// not known, because slots can be released at any time.
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
        let (quota, tally) = (self.quota(), self.tally_on_scale(state));
        match &self.meter {
            Meter::Bucket { units, leak } => {
                let level = self.bucket_level(state, now);
                match leak {
                    LeakMode::Police => token_bucket::fit(units, level, cost),
                    LeakMode::Queue => leaky_bucket::fit(units, level, cost),
                }
            }
            Meter::Fixed => {
                fixed_window::fit(quota, WindowCount::at_instant(tally, quota, now), cost, now)
            }
            Meter::Counter(ticks) => sliding_window_counter::fit(
                quota,
                *ticks,
                WindowPair::at_instant(tally, quota, *ticks, now),
                cost,
                now,
            ),
            Meter::Log => match tally {
                Some(Tally::Log(log)) => log.fit(quota, cost, now),
                _ => Fit::NOW,
            },
            Meter::Slots => concurrent::fit(as_log(tally), quota, cost, now),
        }
    }

    /// Adds `cost`, whether or not it fits. Debt is capped at one full bucket or window.
    #[inline]
    pub fn charge(&self, state: &mut Option<State>, cost: u64, now: Timestamp) {
        let quota = self.quota();
        let tally = match &self.meter {
            Meter::Bucket { units, .. } => {
                Tally::Bucket(self.bucket_level(state.as_ref(), now).plus(units, cost))
            }
            Meter::Fixed => {
                let count =
                    WindowCount::at_instant(self.tally_on_scale(state.as_ref()), quota, now);
                Tally::Fixed(count.plus(quota, cost))
            }
            Meter::Counter(ticks) => {
                let pair =
                    WindowPair::at_instant(self.tally_on_scale(state.as_ref()), quota, *ticks, now);
                Tally::Counter(pair.plus(quota, cost))
            }
            Meter::Log | Meter::Slots => {
                let mut log = match state.take() {
                    Some(State { scale, tally: Tally::Log(log) }) if self.reads_log(scale) => log,
                    _ => Box::default(),
                };
                log.push(quota, self.max_log_entries().unwrap_or_default(), cost, now);
                Tally::Log(log)
            }
        };
        *state = Some(State { scale: self.scale, tally });
    }

    /// Refunds a `cost` that was charged at `charged_at`, except for the part that has drained or
    /// expired since then.
    pub fn refund(
        &self,
        state: &mut Option<State>,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) {
        let quota = self.quota();
        let Some(stored) = state else { return };
        if !self.meter.is_bucket() && stored.scale != self.scale && !self.reads_log(stored.scale) {
            return;
        }
        let tally = match (&self.meter, &mut stored.tally) {
            // It is not known how much drained at the previous rate. An estimate that is too low
            // would refund the same quota twice.
            (Meter::Bucket { .. }, _) if charged_at < self.effective_since() => return,
            (Meter::Bucket { units, .. }, Tally::Bucket(_)) => Tally::Bucket(
                self.bucket_level(Some(stored), now).minus(units, cost, charged_at, now),
            ),
            (Meter::Fixed, Tally::Fixed(_)) => {
                let count = WindowCount::at_instant(Some(&stored.tally), quota, now);
                Tally::Fixed(count.minus(quota, cost, charged_at))
            }
            (Meter::Counter(ticks), Tally::Counter(_)) => {
                let pair = WindowPair::at_instant(Some(&stored.tally), quota, *ticks, now);
                Tally::Counter(pair.minus(quota, cost, charged_at))
            }
            (Meter::Log | Meter::Slots, Tally::Log(log)) => return log.refund(cost, charged_at),
            _ => return,
        };
        *state = Some(State { scale: self.scale, tally });
    }

    /// Renews slots that were acquired or last renewed at `charged_at`: their hold time now starts
    /// at `now`. Slots that have expired in the meantime are added again, going into debt if
    /// necessary, because the holder still uses them. Has no effect on policies other than
    /// concurrency limits.
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

    /// The remaining quota at `now`.
    #[inline]
    #[must_use]
    pub fn gauge(&self, state: Option<&State>, now: Timestamp) -> Gauge {
        let (quota, tally) = (self.quota(), self.tally_on_scale(state));
        match &self.meter {
            Meter::Bucket { units, .. } => {
                token_bucket::gauge(units, self.bucket_level(state, now))
            }
            Meter::Fixed => {
                fixed_window::gauge(quota, WindowCount::at_instant(tally, quota, now), now)
            }
            Meter::Counter(ticks) => sliding_window_counter::gauge(
                quota,
                *ticks,
                WindowPair::at_instant(tally, quota, *ticks, now),
                now,
            ),
            Meter::Log => match tally {
                Some(Tally::Log(log)) => log.gauge(quota, now),
                _ => WindowLog::default().gauge(quota, now),
            },
            Meter::Slots => concurrent::gauge(as_log(tally), quota, now),
        }
    }

    /// Moves timestamps after `now` to `now`. A clock that went back then neither refills a counter
    /// nor locks a key out for longer than one window or bucket. A bucket level on another scale is
    /// converted to this policy's scale, so that it expires as this policy requires.
    #[inline]
    pub fn rebase(&self, state: &mut State, now: Timestamp) {
        let window = || now.as_micros() / self.quota().window.get();
        match &mut state.tally {
            Tally::Bucket(level) if state.scale == self.scale => level.at = level.at.min(now),
            Tally::Bucket(_) => {
                let tally = Tally::Bucket(self.bucket_level(Some(state), now));
                *state = State { scale: self.scale, tally };
            }
            Tally::Fixed(count) => count.window = count.window.min(window()),
            Tally::Counter(pair) => pair.rebase(self.quota(), window()),
            Tally::Log(log) => log.rebase(now),
            Tally::Ban(record) => *record = record.rebased(now),
        }
    }

    /// The tally of a state, if this policy can read it.
    #[inline]
    fn tally_on_scale<'a>(&self, state: Option<&'a State>) -> Option<&'a Tally> {
        let readable = |scale| scale == self.scale || self.reads_log(scale);
        state.filter(|state| readable(state.scale)).map(|state| &state.tally)
    }

    /// Whether a state on this scale is a log that this policy can read. A log holds the time of
    /// each request, so it can be read with any window; a lending policy has a longer one than the
    /// rule's own.
    #[inline]
    fn reads_log(&self, scale: ScaleId) -> bool {
        match self.meter {
            Meter::Log => scale == self.scale || matches!(scale.resolve(), Scale::Log { .. }),
            Meter::Slots => scale == self.scale,
            _ => false,
        }
    }

    /// The units of a policing bucket, if `scale` is this policy's scale. In this common case a
    /// store need not unpack a whole state.
    #[inline]
    pub(crate) fn policing_units(&self, scale: ScaleId) -> Option<&Units> {
        match &self.meter {
            Meter::Bucket { units, leak: LeakMode::Police } if scale == self.scale => Some(units),
            _ => None,
        }
    }

    /// The level of a bucket at `now`, converted from the scale it was written on to this policy's.
    #[inline]
    fn bucket_level(&self, state: Option<&State>, now: Timestamp) -> BucketLevel {
        let Meter::Bucket { units, .. } = &self.meter else { return BucketLevel::empty(now) };
        match state {
            Some(State { scale, tally: Tally::Bucket(level) }) if *scale == self.scale => {
                // Cap the level at the time the burst may have been lowered, not at each read. A
                // cap applied at each read would make every reported wait too short.
                level.settled(units, self.effective_since(), now)
            }
            Some(State { scale, tally: Tally::Bucket(level) }) => match scale.resolve() {
                // Stores drop states that have expired on their own scale. The result must not
                // depend on whether a store has already done so.
                Scale::Bucket { per_micro, .. } if level.drained(per_micro, now).used == 0 => {
                    BucketLevel::empty(now)
                }
                Scale::Bucket { per_micro, per_request } => level
                    .converted(per_micro, per_request, units, self.effective_since(), now)
                    .drained(units.per_micro, now),
                _ => BucketLevel::empty(now),
            },
            _ => BucketLevel::empty(now),
        }
    }
}

fn as_log(tally: Option<&Tally>) -> Option<&WindowLog> {
    match tally {
        Some(Tally::Log(log)) => Some(log),
        _ => None,
    }
}

impl State {
    /// The instant from which the state is equivalent to an absent one.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        match (&self.tally, self.scale.resolve()) {
            (Tally::Bucket(level), Scale::Bucket { per_micro, .. }) => {
                level.at.plus(Micros::new(level.used.div_ceil(per_micro.max(1))))
            }
            (Tally::Fixed(count), Scale::Fixed { window }) => count.expires_at(window),
            (Tally::Counter(pair), Scale::Counter { window }) => pair.expires_at(window),
            (Tally::Log(log), Scale::Log { window } | Scale::Slots { hold: window }) => {
                log.expires_at(window)
            }
            (Tally::Ban(record), Scale::Ban { forget }) => record.expires_at(forget),
            // A tally on a scale of another kind is never written; if one is read, it is ignored.
            _ => Timestamp::EPOCH,
        }
    }
}

#[cfg(test)]
mod tests;
