//! All rules or none: how a batch of charges is decided, over any table of states.
//!
//! The caller holds whatever makes the batch one step (locks, a script); this decides and writes.
//! A refused request changes no counter, except what [`Role::Always`] and bans ask for.

use crate::algorithm::token_bucket::{self, Level};
use crate::algorithm::{Fit, Gauge, State, Tally};
use crate::decision::{Reading, Retry, Verdict};
use crate::quota::Units;
use crate::scale::ScaleId;
use crate::store::{Charge, Op, Role};
use crate::time::{Micros, Timestamp};

/// Which of a charge's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The counter itself.
    Main,
    /// The counter of warnings.
    Grace,
    /// The record of strikes.
    Ban,
}

/// The states of a batch, each named by the charge's place in it and the part.
pub trait Cells {
    /// Shows a state; absent means untouched.
    fn look<R>(&mut self, charge: usize, part: Part, see: impl FnOnce(Option<&State>) -> R) -> R;

    /// The level of a charge's own counter, where it is a bucket and the table can show it without
    /// unpacking a whole state: most counters are buckets, and most decisions look at nothing else.
    fn level(&mut self, charge: usize) -> Option<(ScaleId, Level)> {
        _ = charge;
        None
    }

    /// Puts back a level that [`level`](Self::level) showed, changed.
    fn set_level(&mut self, charge: usize, level: Level) {
        self.edit(charge, Part::Main, |state| {
            if let Some(State { tally: Tally::Bucket(kept), .. }) = state {
                *kept = level;
            }
        });
    }

    /// Lets a state be changed; one that is left absent is not kept.
    fn edit<R>(
        &mut self,
        charge: usize,
        part: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R;
}

/// Does `op` to `charges` at `now` and fills in `readings`.
#[inline]
pub fn apply<C: Cells>(
    op: Op,
    charges: &[Charge<'_>],
    now: Timestamp,
    cells: &mut C,
    readings: &mut [Reading],
) {
    debug_assert_eq!(charges.len(), readings.len());
    match (op, charges, readings) {
        (Op::Charge, [charge], [reading]) if charge.grace.is_none() && charge.ban.is_none() => {
            *reading = charge_one(charge, now, cells);
        }
        (Op::Charge, charges, readings) => charge_all(charges, now, cells, readings),
        (op, charges, readings) => {
            for (i, (charge, reading)) in charges.iter().zip(readings).enumerate() {
                *reading = match op {
                    Op::Peek => look(i, charge, now, cells),
                    op => amend(op, i, charge, now, cells),
                };
            }
        }
    }
}

/// One plain charge: looked at and written in one visit.
#[inline]
fn charge_one<C: Cells>(charge: &Charge<'_>, now: Timestamp, cells: &mut C) -> Reading {
    if let Some(mut bucket) = plain_bucket(0, charge, now, cells) {
        let passes = bucket.fits();
        settle_bucket(0, &mut bucket, charge, passes, cells);
        return bucket.reading(charge, now);
    }
    cells.edit(0, Part::Main, |state| {
        let fit = charge.fit(state.as_ref(), now);
        settle(charge, fit.is_now(), state, now);
        reading(charge, fit, charge.policy.gauge(state.as_ref(), now), now)
    })
}

fn charge_all<C: Cells>(
    charges: &[Charge<'_>],
    now: Timestamp,
    cells: &mut C,
    readings: &mut [Reading],
) {
    let mut admitted = true;
    // Plain buckets, kept from the look to the charge.
    let mut buckets = [None; KEPT];
    for (i, (charge, told)) in charges.iter().zip(readings.iter_mut()).enumerate() {
        let plain = plain_bucket(i, charge, now, cells);
        let fit = match plain {
            Some(bucket) => bucket.fit(),
            None => cells.look(i, Part::Main, |state| charge.fit(state, now)),
        };
        if let Some(kept) = buckets.get_mut(i) {
            *kept = plain;
        }
        // What is left is told below, once it is known whether anything was charged.
        *told = reading(charge, fit, UNKNOWN, now);
        penalise(i, charge, now, cells, told);
        admitted &= !told.verdict.refuses();
    }
    for (i, (charge, told)) in charges.iter().zip(readings).enumerate() {
        let passes = admitted && told.verdict == Verdict::Allow;
        let left = match buckets.get(i).copied().flatten() {
            Some(mut bucket) => {
                settle_bucket(i, &mut bucket, charge, passes, cells);
                bucket.gauge()
            }
            None => cells.edit(i, Part::Main, |state| {
                settle(charge, passes, state, now);
                charge.policy.gauge(state.as_ref(), now)
            }),
        };
        told.set_left(left);
        punish(i, charge, admitted, told.verdict, now, cells);
    }
}

/// What is left while it is not known yet.
const UNKNOWN: Gauge = Gauge { remaining: 0, reset_after: Micros::ZERO, next_after: Micros::ZERO };

/// How many plain buckets of a batch are kept from the look to the charge.
const KEPT: usize = 4;

/// A plain charge on a bucket that polices, from the look to the answer. Most charges are of this
/// kind: a store may look and settle while it holds its locks, and tell the reading afterwards.
#[derive(Clone, Copy, Debug)]
pub struct PlainBucket<'a> {
    units: &'a Units,
    /// Units that the cost takes.
    asked: u64,
    /// Units by which the cost goes over the limit.
    over: u64,
    /// The level, drained.
    level: Level,
    /// Whether the level as it is kept lies ahead of now.
    ahead: bool,
}

impl<'a> PlainBucket<'a> {
    /// Looks at the level that is kept of a charge, if that is on its policy's own scale.
    #[inline]
    #[must_use]
    pub fn look(charge: &Charge<'a>, scale: ScaleId, kept: Level, now: Timestamp) -> Option<Self> {
        let units = charge.policy.policing(scale)?;
        let level = kept.settled(units, charge.policy.since(), now);
        let asked = charge.cost.saturating_mul(units.per_request);
        let over = level.used.saturating_add(asked).saturating_sub(units.capacity);
        Some(Self { units, asked, over, level, ahead: kept.at > now })
    }

    /// Whether the cost fits.
    #[inline]
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.over == 0
    }

    /// Makes the charge if it passes, or is to be made always; says what to keep, if that changes.
    #[inline]
    pub fn settle(&mut self, role: Role, passes: bool) -> Option<Level> {
        let charged = passes || role == Role::Always;
        if charged {
            self.level.used = self.level.used.saturating_add(self.asked).min(self.units.ceiling);
        }
        (charged || self.ahead).then_some(self.level)
    }

    /// What the charge's reading is, with no other charge considered.
    #[inline]
    #[must_use]
    pub fn reading(&self, charge: &Charge<'_>, now: Timestamp) -> Reading {
        reading(charge, self.fit(), self.gauge(), now)
    }

    #[inline]
    fn fit(&self) -> Fit {
        match self.over {
            0 => Fit::NOW,
            _ if self.asked > self.units.capacity => Fit::Never,
            over => Fit::After(self.units.drain_time(over)),
        }
    }

    #[inline]
    fn gauge(&self) -> Gauge {
        token_bucket::gauge(self.units, self.level)
    }
}

/// The bucket of a charge, if it is a plain one and the table shows its level.
#[inline]
fn plain_bucket<'a, C: Cells>(
    i: usize,
    charge: &Charge<'a>,
    now: Timestamp,
    cells: &mut C,
) -> Option<PlainBucket<'a>> {
    let (scale, level) = cells.level(i)?;
    PlainBucket::look(charge, scale, level, now)
}

/// What [`settle`] does, to a plain bucket.
#[inline]
fn settle_bucket<C: Cells>(
    i: usize,
    bucket: &mut PlainBucket<'_>,
    charge: &Charge<'_>,
    passes: bool,
    cells: &mut C,
) {
    if let Some(level) = bucket.settle(charge.role, passes) {
        cells.set_level(i, level);
    }
}

/// Counts a warning that was given, and a refusal towards a ban.
#[inline]
fn punish<C: Cells>(
    i: usize,
    charge: &Charge<'_>,
    admitted: bool,
    verdict: Verdict,
    now: Timestamp,
    cells: &mut C,
) {
    if let Some(grace) = charge.grace {
        cells.edit(i, Part::Grace, |state| match (admitted, verdict, state) {
            (true, Verdict::Warn, state) => grace.charge(state, 1, now),
            (_, _, Some(state)) => grace.rebase(state, now),
            _ => {}
        });
    }
    if let Some(ban) = charge.ban {
        cells.edit(i, Part::Ban, |state| match (verdict, state) {
            (Verdict::Deny, state) => ban.strike(state, now),
            (_, Some(state)) => charge.policy.rebase(state, now),
            _ => {}
        });
    }
}

/// What a charge would say, with nothing changed.
fn look<C: Cells>(i: usize, charge: &Charge<'_>, now: Timestamp, cells: &mut C) -> Reading {
    let mut told = cells.look(i, Part::Main, |state| {
        let fit = charge.fit(state, now);
        reading(charge, fit, charge.policy.gauge(state, now), now)
    });
    penalise(i, charge, now, cells, &mut told);
    if let Some(grace) = charge.grace {
        let left = cells.look(i, Part::Grace, |state| grace.gauge(state, now).remaining);
        told.warnings = u16::try_from(grace.limit().saturating_sub(left)).unwrap_or(u16::MAX);
    }
    told
}

/// A ban overrides what the counter says; a warning in reserve turns a refusal into one.
#[inline]
fn penalise<C: Cells>(
    i: usize,
    charge: &Charge<'_>,
    now: Timestamp,
    cells: &mut C,
    told: &mut Reading,
) {
    if let Some(ban) = charge.ban.filter(|_| charge.role != Role::Shadow)
        && let Some(left) = cells.look(i, Part::Ban, |state| ban.banned(state, now))
    {
        told.verdict = Verdict::Ban;
        // Both the ban and the limit must be over.
        told.retry = match told.retry {
            Retry::Never => Retry::Never,
            Retry::After(wait) => Retry::After(wait.max(left)),
            Retry::Now => Retry::After(left),
        };
    } else if let (Verdict::Deny, Some(grace)) = (told.verdict, charge.grace)
        && told.retry != Retry::Never
        && cells.look(i, Part::Grace, |state| grace.fit(state, 1, now).is_now())
    {
        told.verdict = Verdict::Warn;
    }
}

/// Makes a charge that passes, or is to be made always. One that is not made leaves nothing behind,
/// unless the state lies ahead of `now`: that is the one thing that even a refusal writes, because
/// unwritten it would lock its key out until the clock has caught up.
#[inline]
fn settle(charge: &Charge<'_>, passes: bool, state: &mut Option<State>, now: Timestamp) {
    if passes || charge.role == Role::Always {
        charge.policy.charge(state, charge.cost, now);
    } else if let Some(state) = state {
        charge.policy.rebase(state, now);
    }
}

/// Force, refund, renew and reset: done to each charge, whatever the others say.
fn amend<C: Cells>(
    op: Op,
    i: usize,
    charge: &Charge<'_>,
    now: Timestamp,
    cells: &mut C,
) -> Reading {
    let policy = charge.policy;
    if op == Op::Reset {
        cells.edit(i, Part::Grace, |state| *state = None);
        cells.edit(i, Part::Ban, |state| *state = None);
    }
    cells.edit(i, Part::Main, |state| {
        if let Some(state) = state {
            policy.rebase(state, now);
        }
        let mut fit = Fit::NOW;
        match op {
            Op::Reset => *state = None,
            Op::Refund { charged_at } => policy.refund(state, charge.cost, charged_at, now),
            Op::Renew { charged_at } => policy.renew(state, charge.cost, charged_at, now),
            _ => {
                fit = policy.fit(state.as_ref(), charge.cost, now);
                policy.charge(state, charge.cost, now);
            }
        }
        reading(charge, fit, policy.gauge(state.as_ref(), now), now)
    })
}

#[inline]
fn reading(charge: &Charge<'_>, fit: Fit, left: Gauge, now: Timestamp) -> Reading {
    let (retry, delay) = match fit {
        Fit::Now { delay } => (Retry::Now, delay),
        Fit::After(wait) => (Retry::After(wait), Micros::ZERO),
        Fit::Never => (Retry::Never, Micros::ZERO),
    };
    let verdict = match (fit.is_now(), charge.role) {
        (true, _) => Verdict::Allow,
        (false, Role::Shadow) => Verdict::ShadowDeny,
        (false, _) => Verdict::Deny,
    };
    Reading {
        verdict,
        warnings: 0,
        limit: charge.policy.limit(),
        remaining: left.remaining,
        reset_after: left.reset_after,
        next_after: left.next_after,
        retry,
        delay,
        now,
    }
}
