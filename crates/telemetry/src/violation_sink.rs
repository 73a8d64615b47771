//! The interface to the storage of violations.

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;

use crate::violation::ViolationBatch;

/// Writes violations, for instance into a database.
pub trait ViolationSink: Send + Sync {
    /// The reason why a call failed.
    type Error: Send;

    /// Writes all violations of a batch or none. Does nothing if the batch was already written.
    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), Self::Error>>;

    /// Deletes violations older than `before`, and the oldest ones beyond a total of `most`.
    /// Returns the number of deleted violations.
    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Self::Error>>;
}
