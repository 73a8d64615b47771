//! How much memory the table may use, and how much it does.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Bytes granted and taken, shared by all shards. Touched when a table grows, not on every decision.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    taken: AtomicU64,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, taken: AtomicU64::new(0) }
    }

    /// Takes bytes if they are there.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        self.taken
            .fetch_update(Relaxed, Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= self.most)
            })
            .is_ok()
    }

    /// Takes bytes that [`has`](Self::has) found a moment ago.
    pub(crate) fn take_anyway(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.taken().saturating_add(bytes) <= self.most
    }

    pub(crate) fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    pub(crate) const fn most(&self) -> u64 {
        self.most
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
}
