//! The lock and the atomics of this crate, or loom's when their interleavings are explored.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use parking_lot::MutexGuard as Guard;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard as Guard;

/// A mutual exclusion lock that knows no poisoning.
#[derive(Debug)]
pub(crate) struct Lock<T>(
    #[cfg(not(loom))] parking_lot::Mutex<T>,
    #[cfg(loom)] loom::sync::Mutex<T>,
);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Self(parking_lot::Mutex::new(value));
        #[cfg(loom)]
        return Self(loom::sync::Mutex::new(value));
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock()
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
