//! An in-process store: exact under any number of threads, with bounded memory.
//!
//! The counters are in a sharded table of 32-byte slots, keyed by 128-bit fingerprints. A batch of
//! charges holds the locks of its shards while [`tidegate_core::batch`] decides it, so the batch is
//! applied completely or not at all. Expired states are removed in small steps. When the memory
//! budget is used up, new keys share overflow buckets. This crate knows nothing of rules or
//! requests.

mod budget;
mod cells;
mod clock;
mod fast_path;
mod hash;
mod overflow;
mod shard;
mod slot;
mod snapshot;
mod spill;
mod store;
mod sync;

pub use clock::FastClock;
pub use snapshot::{RestoreSummary, SnapshotError};
pub use store::{DEFAULT_MAX_BYTES, MemoryStore, StoreUsage};
