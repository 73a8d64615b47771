//! The lock and the atomics of this crate, or loom's when their interleavings are explored.
//!
//! What is done under a lock takes tens of nanoseconds, so the lock itself counts. It is free again by
//! one plain store: a lock that wakes those who sleep on it needs a second atomic exchange for that,
//! which was a tenth of a decision. So nobody is woken. Whoever finds the lock taken looks again, less
//! and less often.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use spin::mutex::SpinMutexGuard as Guard;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard as Guard;

/// A mutual exclusion lock that knows no poisoning.
#[derive(Debug)]
pub(crate) struct Lock<T>(
    #[cfg(not(loom))] spin::mutex::SpinMutex<T>,
    #[cfg(loom)] loom::sync::Mutex<T>,
);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Self(spin::mutex::SpinMutex::new(value));
        #[cfg(loom)]
        return Self(loom::sync::Mutex::new(value));
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cfg(not(loom))]
    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        let mut looks = 0;
        loop {
            rest(looks);
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            looks += 1;
        }
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What a thread does that has looked so often and found the lock taken.
///
/// First it leaves the lock's cache line alone, for as long as a few decisions take and soon for as
/// long as dozens, which then run at full speed; looking again at once would take the line from the
/// one who works. Then it lets others run, as the one who holds the lock may be waiting for this very
/// core. Then it naps: the holder was put aside by the kernel, which takes milliseconds.
#[cfg(not(loom))]
fn rest(looks: u32) {
    const FIRST: u32 = 8;
    const NAP: std::time::Duration = std::time::Duration::from_micros(50);
    match looks {
        0..16 => (0..FIRST << (2 * looks).min(4)).for_each(|_| std::hint::spin_loop()),
        16..32 => std::thread::yield_now(),
        _ => std::thread::sleep(NAP),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// More threads than cores, so that some are put aside while they hold the lock.
    #[test]
    fn one_thread_at_a_time_is_inside() {
        let (count, threads, times) = (Lock::new(0_u64), 16, 20_000);
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
    fn a_lock_that_was_held_for_long_lets_everybody_in_at_last() {
        let (lock, ready) = (Lock::new(0), Barrier::new(5));
        thread::scope(|scope| {
            let held = lock.lock();
            for _ in 0..4 {
                scope.spawn(|| {
                    ready.wait();
                    *lock.lock() += 1;
                });
            }
            ready.wait();
            // Long enough that they have stopped spinning.
            (0..200).for_each(rest);
            assert_eq!(*held, 0);
            drop(held);
        });
        assert_eq!(*lock.lock(), 4);
    }
}
