//! The lock and the atomics of this crate, or loom's when their interleavings are explored.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use parking_lot::MutexGuard as Guard;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard as Guard;

/// How often a thread looks whether a lock is free before it goes to sleep.
#[cfg(not(loom))]
const LOOKS: usize = 8;

/// How many pauses of the processor lie between two looks.
#[cfg(not(loom))]
const PAUSES: usize = 64;

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
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Waits for a lock that somebody holds, for tens of nanoseconds as a rule. Looking again and
    /// again would take its cache line from the one who works under it; so a thread that comes too
    /// late leaves the line alone for as long as a dozen decisions take, which then run at full
    /// speed. One that was let in late all the same sleeps until it is woken.
    #[cfg(not(loom))]
    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        for _ in 0..LOOKS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
