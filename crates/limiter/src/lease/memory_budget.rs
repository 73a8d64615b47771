//! The memory that the leased counters of a node may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes that are left.
#[derive(Debug)]
pub(super) struct MemoryBudget(AtomicUsize);

/// What one counter takes of the budget, until it is dropped.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(bytes)))
    }

    /// Reserves bytes, if they are left.
    pub(super) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<ReservedBytes> {
        self.take(bytes).then(|| ReservedBytes { budget: Arc::clone(self), bytes })
    }

    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

impl ReservedBytes {
    /// Changes the size. `false` if that many bytes are not left.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        if !self.budget.take(bytes.saturating_sub(self.bytes)) {
            return false;
        }
        self.budget.0.fetch_add(self.bytes.saturating_sub(bytes), Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_take_more_than_budget() {
        let budget = MemoryBudget::new(100);
        let left = || budget.0.load(Relaxed);
        let mut first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none() && !first.resize(101));
        assert_eq!(left(), 40);
        assert!(first.resize(100));
        assert!(budget.reserve(1).is_none());
        assert!(first.resize(70));
        assert_eq!(left(), 30);
        drop(first);
        assert_eq!(left(), 100);
    }
}
