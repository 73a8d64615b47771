//! What the counters that a node decides by itself take, for those who size a fleet.

use crate::lease;
use crate::write_behind;

/// A node leases a counter once it has this many requests within one lease.
pub const HOT_REQUESTS: u32 = lease::HOT_REQUESTS;

/// Bytes of one leased counter, as the node's budget estimates them.
pub const LEASED_COUNTER_BYTES: usize = lease::LeaseBook::COUNTER_BYTES;

/// Bytes of one asynchronous counter, as the node's budget estimates them.
pub const ASYNC_COUNTER_BYTES: usize = write_behind::AsyncBook::COUNTER_BYTES;

/// Bytes of the table in which a node finds the counters that are worth leasing.
pub const HOT_TABLE_BYTES: usize = lease::HOT_TABLE_BYTES;

/// The most counters that one call to the store flushes.
pub const MAX_FLUSH_COUNTERS: usize = write_behind::MAX_BATCH;

/// Bytes that leased counters take at most, and asynchronous ones as well, of a node's budget.
#[must_use]
pub const fn counter_budget(max_bytes: usize) -> usize {
    max_bytes / 2
}
