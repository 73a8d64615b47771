//! What a store is asked, and the face that every store has.

use std::fmt;
use std::future::Future;

use crate::algorithm::{Fit, State};
use crate::decision::{AnsweredBy, Reading};
use crate::key::Key;
use crate::penalty::BanPolicy;
use crate::policy::Policy;
use crate::time::{Micros, Timestamp};

/// One counter to work on; a request makes a batch of them, no two with the same key.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Whose counter.
    pub key: Key<'a>,
    /// How it counts.
    pub policy: &'a Policy,
    /// How much.
    pub cost: u64,
    /// What its refusal means.
    pub role: Role,
    /// Over the limit, a request still passes with a warning while this second counter admits it.
    pub grace: Option<&'a Policy>,
    /// Repeated refusals lead to a ban.
    pub ban: Option<&'a BanPolicy>,
    /// What becomes of a request that would have to wait its turn.
    pub queue: Queue,
}

impl<'a> Charge<'a> {
    /// A charge that nothing but its cost is said of.
    #[must_use]
    pub const fn plain(key: Key<'a>, policy: &'a Policy, cost: u64) -> Self {
        let (role, queue) = (Role::Enforce, Queue::Hold);
        Self { key, policy, cost, role, grace: None, ban: None, queue }
    }

    /// Whether the cost fits on top of a state.
    #[inline]
    pub(crate) fn fit(&self, state: Option<&State>, now: Timestamp) -> Fit {
        match (self.policy.fit(state, self.cost, now), self.queue) {
            // By then those before it have left, and not a microsecond earlier.
            (Fit::Now { delay }, Queue::Refuse) if delay > Micros::ZERO => Fit::After(delay),
            (fit, _) => fit,
        }
    }
}

/// What becomes of a request that fits, but that a queueing rule would let wait its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// It is admitted with a delay: whoever asks can hold it for so long.
    Hold,
    /// Whoever asks cannot hold it: it does not fit, and the delay is how long to wait.
    Refuse,
}

/// What a charge's refusal means to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The request is refused, and no charge of the batch is made.
    Enforce,
    /// Nothing: it is charged only when it would have passed, and never refuses.
    Shadow,
    /// The request is refused, yet this charge is made all the same, into debt if need be.
    Always,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Charge all or none.
    Charge,
    /// Say what a charge would say; change nothing.
    Peek,
    /// Charge all, into debt if need be.
    Force,
    /// Give back what was charged at this instant of the store's clock.
    Refund {
        /// When it was charged.
        charged_at: Timestamp,
    },
    /// Hold slots on that were taken or last renewed at this instant of the store's clock; the reading
    /// tells the new one. What has lapsed is taken again, into debt if need be. Does nothing to
    /// policies that hold no slots.
    Renew {
        /// When they were taken or last renewed.
        charged_at: Timestamp,
    },
    /// Forget the counters, warnings and bans.
    Reset,
}

/// Why a store did not answer. A charge that is in neither list was certainly not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// For the log, not for clients.
    pub reason: String,
    /// The places of the charges that were answered all the same (their part of the store is well);
    /// their readings stand.
    pub answered: Vec<usize>,
    /// The places of the charges that may have been made, although no answer says so.
    pub unknown: Vec<usize>,
}

impl StoreError {
    /// Nothing of what was asked was done.
    pub fn nothing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), answered: Vec::new(), unknown: Vec::new() }
    }

    /// None of these charges was answered, and all of them may have been made.
    pub fn unknown(reason: impl Into<String>, charges: usize) -> Self {
        Self { unknown: (0..charges).collect(), ..Self::nothing(reason) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StoreError {}

/// Where counters live and whose clock counts.
pub trait Store: Send + Sync {
    /// Whether it answers without waiting for anything: its futures are ready when first polled.
    const IMMEDIATE: bool = false;

    /// Does `op` to all of `charges` at one instant, fills in one reading for each and says who
    /// answered. What [`AnsweredBy::DenyCache`] answered changed nothing, and only those readings
    /// are told that refuse.
    ///
    /// `readings` is as long as `charges`.
    ///
    /// # Errors
    /// When the store could not answer for some or all of the charges; their readings are then
    /// meaningless.
    fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> impl Future<Output = Result<AnsweredBy, StoreError>> + Send;

    /// The instant by the store's clock, for a rule set that comes into force.
    ///
    /// # Errors
    /// When the store could not answer.
    fn now(&self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// How many nodes count in this store, this one included, as far as is known. While the store
    /// does not answer, this is the number that was last known.
    fn nodes(&self) -> u32 {
        1
    }
}
