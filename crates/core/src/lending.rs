//! Lending policies: what a store counts by when nodes take units in advance and spend them
//! locally, so that the whole fleet stays within the rule's bound.
//!
//! A node takes a *lease* of `n` units: the store charges `n` when it grants them, and the node
//! spends them within `ttl`. What is spent in an interval of length T was therefore granted in one
//! of length T + ttl. The store counts by a slightly smaller policy, so that even everything
//! granted in T + ttl stays within the bound of T. The bound holds for any number of nodes, because
//! it does not depend on who spends the units.

use std::fmt;

use crate::policy::{Algorithm, LeakMode, Meter, Policy, PolicyError};
use crate::quota::Quota;
use crate::time::{Micros, Timestamp};

/// The shortest time for which units are lent.
pub const MIN_LEASE_TTL: Micros = Micros::from_millis(1);

/// For how long nodes may hold units, and which bound holds meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    /// A node spends no unit later than this after it asked for it.
    pub ttl: Micros,
    /// The bound that holds.
    pub bound: LeaseBound,
}

/// The bound of a leased limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseBound {
    /// The bound of the exact limit: the store lends a little less.
    Exact,
    /// What the exact limit admits in an interval that is longer by one `ttl`: the store lends
    /// the whole limit.
    PlusTtl,
}

/// Why units of a limit cannot be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendingError {
    /// A queueing leaky bucket and a concurrency limit need the store for every request.
    NotLendable(Algorithm),
    /// The lease is shorter than [`MIN_LEASE_TTL`].
    TtlTooShort,
    /// The lease is longer than half a window.
    TtlTooLong {
        /// The longest possible.
        max: Micros,
    },
    /// The limit admits too little during one lease.
    NoRoom {
        /// The longest lease that this limit has room for, if any has.
        max_ttl: Option<Micros>,
    },
    /// The smaller limit is invalid.
    Policy(PolicyError),
}

impl Policy {
    /// The policy by which the store counts while it lends units on these terms. It admits no more
    /// than this policy at any instant.
    ///
    /// # Errors
    /// If units of this limit cannot be lent for that long.
    pub fn lending(&self, terms: LeaseTerms) -> Result<Self, LendingError> {
        let (algorithm, quota) = (self.algorithm(), *self.quota());
        if matches!(algorithm, Algorithm::LeakyBucket(LeakMode::Queue) | Algorithm::Concurrent) {
            return Err(LendingError::NotLendable(algorithm));
        }
        if terms.ttl < MIN_LEASE_TTL {
            return Err(LendingError::TtlTooShort);
        }
        let longest = Micros::new(quota.window.get() / 2);
        if !algorithm.is_bucket() && terms.ttl > longest {
            return Err(LendingError::TtlTooLong { max: longest });
        }
        if terms.bound == LeaseBound::PlusTtl {
            return Ok(*self);
        }
        let lent = lending_quota(algorithm, &quota, terms.ttl)
            .ok_or_else(|| LendingError::NoRoom { max_ttl: longest_ttl(algorithm, &quota) })?;
        let policy = Self::new(algorithm, lent).map_err(LendingError::Policy)?;
        Ok(policy.with_effective_since(self.effective_since()))
    }

    /// Until when a lease that the store granted at `granted_at` may be spent, as a span from the
    /// grant on the store's clock. It ends with a fixed window, because units of one window must
    /// not be spent in the next.
    #[must_use]
    pub fn lease_span(&self, ttl: Micros, granted_at: Timestamp) -> Micros {
        if self.algorithm() != Algorithm::FixedWindow {
            return ttl;
        }
        let window = self.quota().window.get();
        ttl.min(Micros::new(window - granted_at.as_micros() % window))
    }

    /// Whether a refund of `cost`, charged at `charged_at`, still gives back a whole request. The
    /// rest has drained or expired.
    #[must_use]
    pub fn is_worth_refunding(&self, cost: u64, charged_at: Timestamp, now: Timestamp) -> bool {
        let (age, window) = (now.since(charged_at), self.quota().window.get());
        let windows_ago =
            (now.as_micros() / window).saturating_sub(charged_at.as_micros() / window);
        cost > 0
            && match self.meter() {
                Meter::Bucket { units, .. } => {
                    let drained = age.get().saturating_mul(units.per_micro);
                    let charged = cost.saturating_mul(units.per_request);
                    charged.saturating_sub(drained) >= units.per_request
                }
                Meter::Fixed => windows_ago == 0,
                Meter::Counter(_) => windows_ago <= 1,
                Meter::Log | Meter::Slots => age < self.quota().window,
            }
    }
}

/// The quota to lend from, or `None` if it would admit nothing worth lending.
fn lending_quota(algorithm: Algorithm, quota: &Quota, ttl: Micros) -> Option<Quota> {
    let (requests, window) = (u128::from(quota.requests), u128::from(quota.window.get()));
    let ttl_micros = u128::from(ttl.get());
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
            let drained = u64::try_from((requests * ttl_micros).div_ceil(window)).ok()?;
            let burst = quota.burst().checked_sub(drained).filter(|burst| *burst > 1)?;
            Some(quota.with_burst(burst))
        }
        Algorithm::FixedWindow | Algorithm::Concurrent => Some(*quota),
        Algorithm::SlidingWindowLog => {
            let window = Micros::new(quota.window.get().checked_add(ttl.get())?);
            Some(Quota { window, ..*quota })
        }
        Algorithm::SlidingWindowCounter => {
            let lent = u64::try_from(requests * window / (window + ttl_micros)).ok()?;
            (lent > 0).then_some(Quota { requests: lent, ..*quota })
        }
    }
}

/// The longest lease, in whole milliseconds, that a limit has room for.
fn longest_ttl(algorithm: Algorithm, quota: &Quota) -> Option<Micros> {
    let millis = match algorithm {
        // ⌈L·ttl/W⌉ ≤ B − 2, solved for ttl.
        Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
            let drained = u128::from(quota.burst().checked_sub(2)?);
            drained * u128::from(quota.window.get()) / u128::from(quota.requests) / 1_000
        }
        // ⌊L·W/(W + ttl)⌋ ≥ 1 for every ttl up to half a window, unless L is 1.
        _ => 0,
    };
    let ttl = Micros::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    (ttl >= MIN_LEASE_TTL).then_some(ttl)
}

impl LeaseBound {
    /// The name in rules documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::PlusTtl => "plus_ttl",
        }
    }
}

impl fmt::Display for LendingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLendable(Algorithm::Concurrent) => {
                f.write_str("the slots of a concurrency limit cannot be lent")
            }
            Self::NotLendable(algorithm) => {
                write!(f, "a {algorithm} that queues needs the store for every request")
            }
            Self::TtlTooShort => write!(f, "units are lent for at least {MIN_LEASE_TTL}"),
            Self::TtlTooLong { max } => {
                write!(f, "units of a window are lent for at most half of it, {max}")
            }
            Self::NoRoom { .. } => {
                f.write_str("the limit has no room for leases: it admits too little beyond what it refills while units are lent")
            }
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LendingError {}
