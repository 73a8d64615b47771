//! Random histories of a counter. Each step gives a time, a cost and an action relative to the
//! policy and to the last reading, so that edge cases occur by design and not by chance.

use proptest::prelude::*;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub struct CounterStep {
    /// How far time advances before the action.
    pub time_step: TimeStep,
    /// The cost.
    pub cost: StepCost,
    /// The operation.
    pub action: StepAction,
}

/// How far time advances.
#[derive(Clone, Copy, Debug)]
pub enum TimeStep {
    /// Not at all.
    Stay,
    /// A few microseconds.
    Ticks(u64),
    /// This many sixteenths of the window.
    Part(u64),
    /// About as long as one request takes to drain.
    OneRequest,
    /// Exactly the last refusal's retry time.
    Retry,
    /// A microsecond less than the retry time.
    JustBeforeRetry,
    /// To the next multiple of the window.
    Boundary,
    /// A microsecond before the next multiple of the window.
    JustBeforeBoundary,
    /// Until the counter is unused.
    Reset,
    /// A microsecond before the counter is unused.
    JustBeforeReset,
    /// One window.
    Window,
    /// A microsecond less than one window.
    JustUnderWindow,
    /// Several windows.
    Idle(u64),
}

/// The cost of a step.
#[derive(Clone, Copy, Debug)]
pub enum StepCost {
    /// One.
    One,
    /// A few.
    Few(u64),
    /// This many eighths of the limit.
    Part(u64),
    /// What the last reading left.
    Remaining,
    /// One more than the last reading left.
    OneMore,
    /// The whole limit.
    All,
    /// More than the limit.
    TooMuch(u64),
}

/// The operation of a step.
#[derive(Clone, Copy, Debug)]
pub enum StepAction {
    /// A charge, if it fits.
    Charge,
    /// A peek.
    Peek,
    /// A charge, into debt if necessary.
    Force,
    /// A refund of an earlier charge, counted back from the last one.
    Refund(usize),
    /// A refund of a charge that may not exist, this many eighths of a window ago.
    RefundUnknown(u64),
    /// A renewal of an earlier charge, counted back from the last one.
    Renew(usize),
    /// A reset of the counter.
    Reset,
}

/// A start time and steps.
#[derive(Clone, Debug)]
pub struct CounterHistory {
    /// The start time.
    pub start: Timestamp,
    /// The steps, in order.
    pub steps: Vec<CounterStep>,
}

/// Histories of at most `max_steps` steps.
pub fn histories(max_steps: usize) -> impl Strategy<Value = CounterHistory> {
    let steps = prop::collection::vec(counter_steps(), 1..=max_steps);
    (0_u8..8, any::<u64>(), steps).prop_map(|(kind, raw, steps)| {
        let micros = match kind {
            0 => 0,
            1 => raw % 5,
            // Aligned to seconds, minutes, hours and days, and just before.
            2 => 1_699_920_000_000_000,
            3 => 1_699_920_000_000_000 - 1,
            _ => raw % 2_000_000_000_000_000,
        };
        CounterHistory { start: Timestamp::from_micros(micros), steps }
    })
}

/// Histories that contain only charges.
pub fn charges_only(max_steps: usize) -> impl Strategy<Value = CounterHistory> {
    histories(max_steps).prop_map(|mut history| {
        history.steps.iter_mut().for_each(|step| step.action = StepAction::Charge);
        history
    })
}

/// Single steps.
pub fn counter_steps() -> impl Strategy<Value = CounterStep> {
    (0_u8..20, 0_u8..12, 0_u8..18, any::<u16>()).prop_map(|(hop, cost, act, raw)| CounterStep {
        time_step: TimeStep::from_kind(hop, u64::from(raw % 16)),
        cost: StepCost::from_kind(cost, u64::from(raw / 16 % 8)),
        action: StepAction::from_kind(act, u64::from(raw / 128 % 8)),
    })
}

impl TimeStep {
    fn from_kind(kind: u8, size: u64) -> Self {
        match kind {
            0..=2 => Self::Stay,
            3 => Self::Ticks(1 + size % 4),
            4..=6 => Self::Part(1 + size),
            7 | 8 => Self::OneRequest,
            9 | 10 => Self::Retry,
            11 => Self::JustBeforeRetry,
            12 => Self::Boundary,
            13 => Self::JustBeforeBoundary,
            14 => Self::Reset,
            15 => Self::JustBeforeReset,
            16 => Self::Window,
            17 => Self::JustUnderWindow,
            18 => Self::Idle(1 + size % 4),
            _ => Self::Idle(100 * size),
        }
    }

    /// The time of the step, from `now` and the last reading.
    #[must_use]
    pub fn advance(self, policy: &Policy, last: &Reading, now: Timestamp) -> Timestamp {
        let window = policy.quota().window.get();
        let to_boundary = window - now.as_micros() % window;
        let wait = match last.retry {
            Retry::After(wait) => last.now.plus(wait).since(now).get(),
            Retry::Now | Retry::Never => 1,
        };
        let reset = last.now.plus(last.reset_after).since(now).get();
        now.plus(Micros::new(match self {
            Self::Stay => 0,
            Self::Ticks(count) => count,
            Self::Part(sixteenths) => window / 16 * sixteenths,
            Self::OneRequest => window.div_ceil(policy.quota().requests),
            Self::Retry => wait,
            Self::JustBeforeRetry => wait.saturating_sub(1),
            Self::Boundary => to_boundary,
            Self::JustBeforeBoundary => to_boundary - 1,
            Self::Reset => reset,
            Self::JustBeforeReset => reset.saturating_sub(1),
            Self::Window => window,
            Self::JustUnderWindow => window - 1,
            Self::Idle(windows) => window.saturating_mul(windows).min(1 << 45),
        }))
    }
}

impl StepCost {
    fn from_kind(kind: u8, size: u64) -> Self {
        match kind {
            0..=2 => Self::One,
            3 | 4 => Self::Few(1 + size),
            5 | 6 => Self::Part(1 + size),
            7 | 8 => Self::Remaining,
            9 => Self::OneMore,
            10 => Self::All,
            _ => Self::TooMuch(size),
        }
    }

    /// The cost, at least 1, given the last reading.
    #[must_use]
    pub fn resolve(self, policy: &Policy, last: &Reading) -> u64 {
        let limit = policy.limit();
        let number = match self {
            Self::One => 1,
            Self::Few(count) => count,
            Self::Part(eighths) => (limit / 8).saturating_mul(eighths),
            Self::Remaining => last.remaining,
            Self::OneMore => last.remaining + 1,
            Self::All => limit,
            Self::TooMuch(more) => (limit + 1).saturating_mul(1 + more),
        };
        number.max(1)
    }
}

impl StepAction {
    fn from_kind(kind: u8, size: u64) -> Self {
        match kind {
            0..=9 => Self::Charge,
            10 => Self::Peek,
            11 | 12 => Self::Force,
            13 if size < 6 => Self::Refund(0),
            13 | 14 => Self::Refund(usize::try_from(size).unwrap_or(0)),
            15 if size == 0 => Self::Reset,
            16 | 17 => Self::Renew(usize::try_from(size).unwrap_or(0)),
            _ => Self::RefundUnknown(size),
        }
    }
}
