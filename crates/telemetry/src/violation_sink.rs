//! Where violations are written.

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;

use crate::violation::ViolationBatch;

/// Writes violations, for instance into a database.
pub trait ViolationSink: Send + Sync {
    /// Why a batch was not written.
    type Error: Send;

    /// Writes violations, all of them or none. A batch that is on record already is left as it is.
    fn record_violations<'a>(
        &'a self,
        batch: &'a ViolationBatch,
    ) -> BoxFuture<'a, Result<(), Self::Error>>;

    /// Drops violations from before an instant, and the oldest of more than `most`. Returns how many.
    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Self::Error>>;
}
