//! All-or-none batches: decides a batch of charges over any table of states.
//!
//! The caller makes the batch atomic (with locks or a script); this module decides and writes.
//! A refused request changes no counter, except for charges with [`Role::Always`] and strikes
//! towards a ban.

use crate::algorithm::token_bucket::{self, BucketLevel};
use crate::algorithm::{Fit, Gauge, State, Tally};
use crate::decision::{Reading, Retry, Verdict};
use crate::quota::Units;
use crate::scale::ScaleId;
use crate::store::{Charge, Op, Role};
use crate::time::{Micros, Timestamp};

/// Selects one of a charge's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// The counter itself.
    Main,
    /// The counter of warnings given within the grace allowance.
    Grace,
    /// The record of strikes and bans.
    Ban,
}

/// The states of a batch. The charge's index in the batch and the kind select a state.
pub trait Cells {
    /// Passes a state to `see`; `None` means the counter is unused.
    fn read<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        see: impl FnOnce(Option<&State>) -> R,
    ) -> R;

    /// The level of a charge's main counter, if it is a bucket and the table can return the level
    /// without unpacking a whole state. Most counters are buckets, and most decisions read nothing
    /// else.
    fn level(&mut self, charge: usize) -> Option<(ScaleId, BucketLevel)> {
        _ = charge;
        None
    }

    /// Writes the new level of a bucket for which [`level`](Self::level) returned one.
    fn set_level(&mut self, charge: usize, level: BucketLevel) {
        self.edit(charge, StateKind::Main, |state| {
            if let Some(State { tally: Tally::Bucket(stored), .. }) = state {
                *stored = level;
            }
        });
    }

    /// Passes a state to `change` and stores the result. If `change` leaves `None`, the state is
    /// removed.
    fn edit<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R;
}

/// Applies `op` to `charges` at `now` and fills in `readings`.
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
                    Op::Peek => peek(i, charge, now, cells),
                    op => adjust(op, i, charge, now, cells),
                };
            }
        }
    }
}

/// Decides a single plain charge, reading and writing its state in one access.
#[inline]
fn charge_one<C: Cells>(charge: &Charge<'_>, now: Timestamp, cells: &mut C) -> Reading {
    if let Some(mut bucket) = plain_bucket(0, charge, now, cells) {
        let passes = bucket.fits();
        settle_bucket(0, &mut bucket, charge, passes, cells);
        return bucket.reading(charge, now);
    }
    cells.edit(0, StateKind::Main, |state| {
        let fit = charge.fit(state.as_ref(), now);
        settle(charge, fit.is_now(), state, now);
        make_reading(charge, fit, charge.policy.gauge(state.as_ref(), now), now)
    })
}

fn charge_all<C: Cells>(
    charges: &[Charge<'_>],
    now: Timestamp,
    cells: &mut C,
    readings: &mut [Reading],
) {
    let mut admitted = true;
    // Plain buckets, cached between the evaluation and the charge.
    let mut buckets = [None; MAX_CACHED_BUCKETS];
    for (i, (charge, reading)) in charges.iter().zip(readings.iter_mut()).enumerate() {
        let plain = plain_bucket(i, charge, now, cells);
        let fit = match plain {
            Some(bucket) => bucket.fit(),
            None => cells.read(i, StateKind::Main, |state| charge.fit(state, now)),
        };
        if let Some(cached) = buckets.get_mut(i) {
            *cached = plain;
        }
        // The gauge is filled in below, once it is known whether the batch is charged.
        *reading = make_reading(charge, fit, UNKNOWN_GAUGE, now);
        apply_penalties(i, charge, now, cells, reading);
        admitted &= !reading.verdict.refuses();
    }
    for (i, (charge, reading)) in charges.iter().zip(readings).enumerate() {
        let passes = admitted && reading.verdict == Verdict::Allow;
        let gauge = match buckets.get(i).copied().flatten() {
            Some(mut bucket) => {
                settle_bucket(i, &mut bucket, charge, passes, cells);
                bucket.gauge()
            }
            None => cells.edit(i, StateKind::Main, |state| {
                settle(charge, passes, state, now);
                charge.policy.gauge(state.as_ref(), now)
            }),
        };
        reading.set_gauge(gauge);
        record_penalties(i, charge, admitted, reading.verdict, now, cells);
    }
}

/// Placeholder for a gauge that is filled in later.
const UNKNOWN_GAUGE: Gauge =
    Gauge { remaining: 0, reset_after: Micros::ZERO, next_after: Micros::ZERO };

/// How many plain buckets of a batch are cached between the evaluation and the charge.
const MAX_CACHED_BUCKETS: usize = 4;

/// A plain charge on a policing bucket, which is the most common kind of charge.
///
/// A store can call [`evaluate`](Self::evaluate) and [`settle`](Self::settle) while it holds its
/// locks, and compute the [`reading`](Self::reading) after releasing them.
#[derive(Clone, Copy, Debug)]
pub struct PlainBucket<'a> {
    units: &'a Units,
    /// Cost of the charge, in units.
    cost_units: u64,
    /// Units by which the charge would exceed the capacity.
    excess_units: u64,
    /// The level, drained to the present.
    level: BucketLevel,
    /// Whether the stored level has a timestamp in the future (the clock went back).
    is_ahead: bool,
}

impl<'a> PlainBucket<'a> {
    /// Evaluates a charge against the stored level. Returns `None` if the policy is not a policing
    /// bucket, or if the level is on another scale.
    #[inline]
    #[must_use]
    pub fn evaluate(
        charge: &Charge<'a>,
        scale: ScaleId,
        stored: BucketLevel,
        now: Timestamp,
    ) -> Option<Self> {
        let units = charge.policy.policing_units(scale)?;
        let level = stored.settled(units, charge.policy.effective_since(), now);
        let cost_units = charge.cost.saturating_mul(units.per_request);
        let excess_units = level.used.saturating_add(cost_units).saturating_sub(units.capacity);
        Some(Self { units, cost_units, excess_units, level, is_ahead: stored.at > now })
    }

    /// Whether the cost fits.
    #[inline]
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.excess_units == 0
    }

    /// Makes the charge if it passes or its role is [`Role::Always`]. Returns the level to store,
    /// or `None` if the stored level stays as it is.
    #[inline]
    pub fn settle(&mut self, role: Role, passes: bool) -> Option<BucketLevel> {
        let charged = passes || role == Role::Always;
        if charged {
            self.level.used =
                self.level.used.saturating_add(self.cost_units).min(self.units.ceiling);
        }
        (charged || self.is_ahead).then_some(self.level)
    }

    /// The charge's reading, without regard to the other charges of the batch.
    #[inline]
    #[must_use]
    pub fn reading(&self, charge: &Charge<'_>, now: Timestamp) -> Reading {
        make_reading(charge, self.fit(), self.gauge(), now)
    }

    #[inline]
    fn fit(&self) -> Fit {
        match self.excess_units {
            0 => Fit::NOW,
            _ if self.cost_units > self.units.capacity => Fit::Never,
            excess => Fit::After(self.units.drain_time(excess)),
        }
    }

    #[inline]
    fn gauge(&self) -> Gauge {
        token_bucket::gauge(self.units, self.level)
    }
}

/// The bucket of a charge, if it is a policing one and the table can return its level.
#[inline]
fn plain_bucket<'a, C: Cells>(
    i: usize,
    charge: &Charge<'a>,
    now: Timestamp,
    cells: &mut C,
) -> Option<PlainBucket<'a>> {
    let (scale, level) = cells.level(i)?;
    PlainBucket::evaluate(charge, scale, level, now)
}

/// Same as [`settle`], for a plain bucket.
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

/// Records a warning that was given, and counts a refusal as a strike towards a ban.
#[inline]
fn record_penalties<C: Cells>(
    i: usize,
    charge: &Charge<'_>,
    admitted: bool,
    verdict: Verdict,
    now: Timestamp,
    cells: &mut C,
) {
    if let Some(grace) = charge.grace {
        cells.edit(i, StateKind::Grace, |state| match (admitted, verdict, state) {
            (true, Verdict::Warn, state) => grace.charge(state, 1, now),
            (_, _, Some(state)) => grace.rebase(state, now),
            _ => {}
        });
    }
    if let Some(ban) = charge.ban {
        cells.edit(i, StateKind::Ban, |state| match (verdict, state) {
            (Verdict::Deny, state) => ban.strike(state, now),
            (_, Some(state)) => charge.policy.rebase(state, now),
            _ => {}
        });
    }
}

/// The reading that a charge would return, without changing any state.
fn peek<C: Cells>(i: usize, charge: &Charge<'_>, now: Timestamp, cells: &mut C) -> Reading {
    let mut reading = cells.read(i, StateKind::Main, |state| {
        let fit = charge.fit(state, now);
        make_reading(charge, fit, charge.policy.gauge(state, now), now)
    });
    apply_penalties(i, charge, now, cells, &mut reading);
    if let Some(grace) = charge.grace {
        let left = cells.read(i, StateKind::Grace, |state| grace.gauge(state, now).remaining);
        reading.warnings = u16::try_from(grace.limit().saturating_sub(left)).unwrap_or(u16::MAX);
    }
    reading
}

/// Adjusts a reading for bans and warnings. A ban overrides the counter's verdict. Otherwise, while
/// the grace allowance lasts, a refusal becomes a warning.
#[inline]
fn apply_penalties<C: Cells>(
    i: usize,
    charge: &Charge<'_>,
    now: Timestamp,
    cells: &mut C,
    reading: &mut Reading,
) {
    if let Some(ban) = charge.ban.filter(|_| charge.role != Role::Shadow)
        && let Some(left) = cells.read(i, StateKind::Ban, |state| ban.remaining_ban(state, now))
    {
        reading.verdict = Verdict::Ban;
        // The request passes only when the ban has ended and the limit has room.
        reading.retry = match reading.retry {
            Retry::Never => Retry::Never,
            Retry::After(wait) => Retry::After(wait.max(left)),
            Retry::Now => Retry::After(left),
        };
    } else if let (Verdict::Deny, Some(grace)) = (reading.verdict, charge.grace)
        && reading.retry != Retry::Never
        && cells.read(i, StateKind::Grace, |state| grace.fit(state, 1, now).is_now())
    {
        reading.verdict = Verdict::Warn;
    }
}

/// Makes the charge if it passes or its role is [`Role::Always`]. A charge that is not made leaves
/// the state unchanged, with one exception: a state with a timestamp after `now` is moved to `now`.
/// Otherwise the key would stay locked out until the clock has caught up.
#[inline]
fn settle(charge: &Charge<'_>, passes: bool, state: &mut Option<State>, now: Timestamp) {
    if passes || charge.role == Role::Always {
        charge.policy.charge(state, charge.cost, now);
    } else if let Some(state) = state {
        charge.policy.rebase(state, now);
    }
}

/// Force, refund, renew, grant and reset: applied to each charge independently of the others.
fn adjust<C: Cells>(
    op: Op,
    i: usize,
    charge: &Charge<'_>,
    now: Timestamp,
    cells: &mut C,
) -> Reading {
    let policy = charge.policy;
    if op == Op::Reset {
        cells.edit(i, StateKind::Grace, |state| *state = None);
        cells.edit(i, StateKind::Ban, |state| *state = None);
    }
    cells.edit(i, StateKind::Main, |state| {
        if let Some(state) = state {
            policy.rebase(state, now);
        }
        let (mut fit, mut granted) = (Fit::NOW, 0);
        match op {
            Op::Grant(terms) => {
                fit = policy.fit(state.as_ref(), charge.cost.saturating_add(terms.leave), now);
                if fit.is_now() {
                    let room = policy.gauge(state.as_ref(), now).remaining - terms.leave;
                    granted = terms.units(charge.cost, room);
                    policy.charge(state, granted.into(), now);
                }
            }
            Op::Reset => *state = None,
            Op::Refund { charged_at } => policy.refund(state, charge.cost, charged_at, now),
            Op::Renew { charged_at } => policy.renew(state, charge.cost, charged_at, now),
            _ => {
                fit = policy.fit(state.as_ref(), charge.cost, now);
                policy.charge(state, charge.cost, now);
            }
        }
        let reading = make_reading(charge, fit, policy.gauge(state.as_ref(), now), now);
        Reading { granted, ..reading }
    })
}

#[inline]
fn make_reading(charge: &Charge<'_>, fit: Fit, gauge: Gauge, now: Timestamp) -> Reading {
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
        granted: 0,
        limit: charge.policy.limit(),
        remaining: gauge.remaining,
        reset_after: gauge.reset_after,
        next_after: gauge.next_after,
        retry,
        delay,
        now,
    }
}
