//! The memory budget of the table.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Bytes allowed and used, shared by all shards. Accessed when a table grows, not on every
/// decision.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    max_bytes: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, used: AtomicU64::new(0) }
    }

    /// Reserves bytes if the budget allows it.
    pub(crate) fn try_reserve(&self, bytes: u64) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes)
            })
            .is_ok()
    }

    /// Reserves bytes after [`can_reserve`](Self::can_reserve) returned true for them.
    pub(crate) fn reserve_unchecked(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn can_reserve(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.max_bytes
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    pub(crate) const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}
