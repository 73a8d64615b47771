//! Decides requests: applies the rules to a request's facts and returns one decision.
//!
//! This crate depends on the [`Store`](tidegate_core::store::Store) trait, not on any particular
//! store, and on [`Facts`](tidegate_rules::Facts), not on any wire protocol. It reads no clock:
//! each reading carries the store's time.

mod ad_hoc;
mod batch;
mod client_counters;
mod decision;
mod deferred_charge;
mod explain;
mod fallback;
mod lease;
mod limiter;
mod local_fallback;
mod no_queue;
mod node_counters;
mod node_quotas;
mod observer;
mod plan;
mod queue_delay;
mod receipt;
mod refund;
mod rule_status;
mod settlement;
pub mod sizing;
mod slots;
mod split;
mod unsettled_usage;
mod usage_migration;
mod write_behind;

pub use ad_hoc::{AdHoc, AdHocPolicyError};
pub use batch::{DecisionQuery, QueryAction, StoreUnavailableError};
pub use client_counters::ClientCounters;
#[cfg(feature = "seeded-bugs")]
pub use decision::ChargeOrigin;
pub use decision::{Decision, RuleReading};
pub use deferred_charge::DeferredCharge;
pub use explain::{Explanation, RuleExplanation};
#[cfg(feature = "seeded-bugs")]
pub use lease::SeededBug;
pub use lease::{
    BorrowBatch, BorrowReport, BorrowStats, BorrowedUnits, DEFAULT_LEASE_BYTES, LeaseClock,
    LeaseStats, LenderStats, RuleBorrowing, StoreCallReport, StoreTask,
};
pub use limiter::Limiter;
pub use local_fallback::NoFallback;
pub use observer::{CounterReading, DecisionEvent, DecisionObserver, DecisionTimer};
pub use queue_delay::QueueDelay;
pub use rule_status::{
    HeldCounters, IndivisibleRule, NodeHoldings, RuleConsistency, describe_bound,
};
pub use slots::HeldSlots;
pub use write_behind::AsyncStats;
