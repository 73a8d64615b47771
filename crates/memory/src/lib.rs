//! Counters in this process: exact under any number of threads, bounded in memory.
//!
//! A sharded table of thirty-two-byte slots keyed by 128-bit fingerprints. A batch of charges holds the
//! locks of its shards while [`tidegate_core::batch`] decides it, so all of it happens or none.
//! What is equal to fresh is shed in small steps; when the byte budget is spent, newcomers share
//! overflow buckets. It knows nothing of rules or requests.

mod budget;
mod cells;
mod clock;
mod hash;
mod overflow;
mod plain;
mod shard;
mod side;
mod slot;
mod snapshot;
mod store;
mod sync;

pub use clock::FastClock;
pub use snapshot::{Restored, SnapshotError};
pub use store::{DEFAULT_MAX_BYTES, MemoryStore, Usage};
