//! The [`Store`] trait, and the batches of charges that stores execute.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::algorithm::{Fit, State};
use crate::decision::{AnsweredBy, Reading};
use crate::key::Key;
use crate::penalty::BanPolicy;
use crate::policy::Policy;
use crate::time::{Micros, Timestamp};

/// An operation on one counter. A request makes a batch of charges, no two with the same key.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The counter.
    pub key: Key<'a>,
    /// How the counter counts.
    pub policy: &'a Policy,
    /// How much to charge.
    pub cost: u64,
    /// What a refusal by this charge means for the request.
    pub role: Role,
    /// A second counter: while it has room, a request over the limit passes with a warning.
    pub grace: Option<&'a Policy>,
    /// When repeated refusals ban the key.
    pub ban: Option<&'a BanPolicy>,
    /// What happens to a request that a queueing rule would delay.
    pub queue: QueueMode,
    /// Whether nodes take units of the counter in advance ([`Op::Grant`]) and return what they do
    /// not use. A refusal may then end sooner than its reading says.
    pub lent: bool,
}

impl<'a> Charge<'a> {
    /// An enforced charge without warnings or bans, whose caller can delay the request.
    #[must_use]
    pub const fn plain(key: Key<'a>, policy: &'a Policy, cost: u64) -> Self {
        let (role, queue) = (Role::Enforce, QueueMode::Hold);
        Self { key, policy, cost, role, grace: None, ban: None, queue, lent: false }
    }

    /// Whether the cost fits on top of a state.
    #[inline]
    pub(crate) fn fit(&self, state: Option<&State>, now: Timestamp) -> Fit {
        match (self.policy.fit(state, self.cost, now), self.queue) {
            // By then the earlier requests have left the queue, and not a microsecond sooner.
            (Fit::Now { delay }, QueueMode::Refuse) if delay > Micros::ZERO => Fit::After(delay),
            (fit, _) => fit,
        }
    }
}

/// What happens to a request that fits, but that a queueing rule would delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMode {
    /// Admit it with a delay, because the caller can hold the request that long.
    Hold,
    /// Refuse it, because the caller cannot hold requests. The delay becomes the retry time.
    Refuse,
}

/// What a refusal by one charge means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The request is refused, and no charge in the batch is made.
    Enforce,
    /// Nothing: a shadow charge never refuses, and is made only if it fits.
    Shadow,
    /// The request is refused, but this charge is made anyway, going into debt if necessary.
    Always,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Charge all or none.
    Charge,
    /// Return what a charge would return, without changing anything.
    Peek,
    /// Charge all, going into debt if necessary.
    Force,
    /// Undo charges that were made at the given instant of the store's clock.
    Refund {
        /// When the charges were made.
        charged_at: Timestamp,
    },
    /// Renew the hold of slots that were acquired or last renewed at the given instant of the
    /// store's clock. The reading's `now` is the instant of this renewal. Expired slots are
    /// acquired again, going into debt if necessary. Has no effect on policies other than
    /// concurrency limits.
    Renew {
        /// When the slots were acquired or last renewed.
        charged_at: Timestamp,
    },
    /// Charge as much as the store lends to a node, which then decides locally. The charge's cost
    /// is the smallest useful grant: with less room, nothing is charged and the reading refuses.
    /// [`Reading::granted`] says how much was charged.
    Grant(GrantTerms),
    /// Delete the counters, warnings and bans.
    Reset,
}

/// How much of a counter's room [`Op::Grant`] charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantTerms {
    /// The most to charge; at least the charge's cost.
    pub most: u32,
    /// How much room to leave for others.
    pub leave: u64,
    /// Of the rest, charge at most one in this many units, unless the charge's cost is more.
    pub part: u64,
}

impl GrantTerms {
    /// How much to charge of a counter with this much `room` beyond [`leave`](Self::leave), which
    /// is at least `least`.
    #[must_use]
    pub fn units(self, least: u64, room: u64) -> u32 {
        let share = room / self.part.max(1);
        // At most `most`, so it fits.
        u32::try_from(share.max(least).min(self.most.into())).unwrap_or(self.most)
    }
}

/// Why a store did not answer. A charge in neither list was definitely not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The reason, for logs. Not meant for clients.
    pub reason: String,
    /// Indexes of the charges that were answered anyway, because their part of the store is
    /// healthy. Their readings are valid.
    pub answered: Vec<usize>,
    /// Indexes of the charges whose outcome is unknown: they may or may not have been made.
    pub unknown: Vec<usize>,
}

impl StoreError {
    /// The error if no charge was made.
    pub fn not_applied(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), answered: Vec::new(), unknown: Vec::new() }
    }

    /// The error if no charge was answered, and any of them may have been made.
    pub fn outcome_unknown(reason: impl Into<String>, charges: usize) -> Self {
        Self { unknown: (0..charges).collect(), ..Self::not_applied(reason) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StoreError {}

/// Holds the counters, and provides the clock for decisions about them.
pub trait Store: Send + Sync {
    /// Whether the store answers without waiting, so that its futures are ready when first polled.
    const IMMEDIATE: bool = false;

    /// Applies `op` to all of `charges` at one instant, fills in one reading for each, and returns
    /// which component answered. If that is [`AnsweredBy::DenyCache`], no counter was changed, and
    /// only the readings that refuse are filled in.
    ///
    /// `readings` must be as long as `charges`.
    ///
    /// # Errors
    /// If the store could not answer for some or all of the charges. The readings of those charges
    /// are then meaningless.
    fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> impl Future<Output = Result<AnsweredBy, StoreError>> + Send;

    /// The current time of the store's clock, used as the time when a rule set takes effect.
    ///
    /// # Errors
    /// If the store could not answer.
    fn now(&self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// The number of nodes that use this store, including this one. While the store does not
    /// answer, this is the last known number.
    fn node_count(&self) -> u32 {
        1
    }
}

/// Polls a future to its end on this thread, for decisions by a store that is
/// [`IMMEDIATE`](Store::IMMEDIATE): such a future is ready when first polled.
#[inline]
pub fn complete_now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
