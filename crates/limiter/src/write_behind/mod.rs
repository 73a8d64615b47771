//! Asynchronous counters: the node decides on its last view of the counter, and reports to the
//! store what it admitted.
//!
//! ```text
//!  request ─▶ AsyncBook ─▶ AsyncCounter ── fresh view, part left? ──▶ decided without the store
//!                               │ every interval, or part used up
//!                               ▼
//!                          TaskQueue ─▶ Op::Force (up to 64 counters) ─▶ store ─▶ new view
//! ```
//!
//! Between two answered flushes a node admits at most its part of the limit, so a bucket admits at
//! most 2B + r(T + I + RTT), for any number of nodes and an interval I. A flush that may have run
//! is not sent again; that adds one part, once.

mod async_book;
mod async_counter;
mod counter_view;
mod flush_batch;
#[cfg(test)]
mod tests;

use tidegate_core::time::Micros;
use tidegate_rules::{Consistency, Rule};

pub(crate) use async_book::{AdmitOutcome, AsyncBook, AsyncRequest};
pub(crate) use flush_batch::{FlushBatch, MAX_BATCH};

/// Statistics of this node's asynchronous counters. Units, flushes and requests are counted from
/// the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncStats {
    /// Counters that the node has a view of.
    pub counters: usize,
    /// Units admitted that the store has not confirmed.
    pub units_open: u64,
    /// Units that the node admitted without asking the store.
    pub units_admitted: u64,
    /// Units that the store counted.
    pub units_flushed: u64,
    /// Units of flushes that may not have run, and are not sent again.
    pub units_lost: u64,
    /// Units that no longer fitted when they were flushed.
    pub units_overshot: u64,
    /// Flushes that the store answered, one for each counter.
    pub flushes: u64,
    /// Calls to the store, each for up to 64 counters.
    pub flush_calls: u64,
    /// Requests that the node refused without asking the store.
    pub refused: u64,
}

/// The time between two flushes of a rule's counters; `None` if the rule is not asynchronous.
pub(crate) fn flush_interval(rule: &Rule) -> Option<Micros> {
    match rule.applied_consistency() {
        Consistency::Async { flush } => Some(*flush),
        _ => None,
    }
}
