//! The lock and the atomics of this crate, or loom's versions when loom explores interleavings.
//!
//! Work under a lock takes tens of nanoseconds, so the cost of the lock itself matters. This lock
//! is released by one plain store. A lock that wakes sleeping waiters needs a second atomic
//! exchange on release, which took a tenth of a decision. Waiters are therefore not woken: they
//! poll the lock at growing intervals.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use spin::mutex::SpinMutexGuard as Guard;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard as Guard;

/// A mutual exclusion lock without poisoning.
#[derive(Debug)]
pub(crate) struct SpinLock<T>(
    #[cfg(not(loom))] spin::mutex::SpinMutex<T>,
    #[cfg(loom)] loom::sync::Mutex<T>,
);

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Self(spin::mutex::SpinMutex::new(value));
        #[cfg(loom)]
        return Self(loom::sync::Mutex::new(value));
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    #[cfg(not(loom))]
    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        let mut attempts = 0;
        loop {
            backoff(attempts);
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            attempts += 1;
        }
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Waits before the next attempt to take a contended lock, after `attempts` failed ones.
///
/// First the thread spins without touching the lock's cache line, at first for as long as a few
/// decisions take and soon for as long as dozens. Polling at once would take the cache line away
/// from the holder and slow it down. Then the thread yields, because the holder may be waiting for
/// this core. Finally it sleeps: the kernel has preempted the holder, which takes milliseconds.
#[cfg(not(loom))]
fn backoff(attempts: u32) {
    const BASE_SPINS: u32 = 8;
    const SLEEP_TIME: std::time::Duration = std::time::Duration::from_micros(50);
    match attempts {
        0..16 => (0..BASE_SPINS << (2 * attempts).min(4)).for_each(|_| std::hint::spin_loop()),
        16..32 => std::thread::yield_now(),
        _ => std::thread::sleep(SLEEP_TIME),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Runs more threads than cores, so that some are preempted while they hold the lock.
    #[test]
    fn lock_is_mutually_exclusive() {
        let (count, threads, times) = (SpinLock::new(0_u64), 16, 20_000);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    (0..times).for_each(|_| {
                        let mut held = count.lock();
                        let seen = *held;
                        *held = seen + 1;
                    });
                });
            }
        });
        assert_eq!(*count.lock(), threads * times);
    }

    #[test]
    fn long_held_lock_admits_all_waiters() {
        let (lock, ready) = (SpinLock::new(0), Barrier::new(5));
        thread::scope(|scope| {
            let held = lock.lock();
            for _ in 0..4 {
                scope.spawn(|| {
                    ready.wait();
                    *lock.lock() += 1;
                });
            }
            ready.wait();
            // Long enough that the waiters have stopped spinning.
            (0..200).for_each(backoff);
            assert_eq!(*held, 0);
            drop(held);
        });
        assert_eq!(*lock.lock(), 4);
    }
}
