//! The decision: what the rules and a store say to a request, as one answer.
//!
//! The engine knows the [`Store`](tidegate_core::store::Store) face, never a store; it knows
//! [`Facts`](tidegate_rules::Facts), never a wire. It reads no clock: a reading tells the store's.

mod ad_hoc;
mod batch;
mod client_counters;
mod decision;
mod deferred_charge;
mod explain;
mod fallback;
mod limiter;
mod local_fallback;
mod no_queue;
mod node_quotas;
mod observer;
mod plan;
mod queue_delay;
mod receipt;
mod refund;
mod settlement;
mod slots;
mod unsettled_usage;
mod usage_migration;

pub use ad_hoc::{AdHoc, AdHocPolicyError};
pub use batch::{DecisionQuery, QueryAction, StoreUnavailableError};
pub use client_counters::ClientCounters;
pub use decision::{Decision, RuleReading};
pub use deferred_charge::DeferredCharge;
pub use explain::{Explanation, RuleExplanation};
pub use limiter::Limiter;
pub use local_fallback::NoFallback;
pub use observer::{DecisionEvent, DecisionObserver, DecisionTimer};
pub use queue_delay::QueueDelay;
pub use slots::HeldSlots;
