//! Striped counters, which threads update without contention.
//!
//! As long as stripes are free, each thread gets an exclusive one and counts with a plain load and
//! store: an atomic addition takes as long as all other work to count a decision. Later threads
//! share a few stripes and add atomically.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Number of stripes shared by the threads without an exclusive stripe.
const SHARED_STRIPES: usize = 4;

/// `N` counters, striped. The shared stripes come first.
pub(super) struct Striped<const N: usize>(Box<[CounterStripe<N>]>);

/// Aligned to two cache lines, because processors prefetch them in pairs.
#[repr(align(128))]
struct CounterStripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    pub(super) fn new() -> Self {
        let stripe = |_| CounterStripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..SHARED_STRIPES + STRIPE_POOL.count).map(stripe).collect())
    }

    #[inline]
    pub(super) fn add(&self, at: usize, count: u64) {
        // A thread that is exiting has returned its stripe and uses a shared one.
        let stripe = LOCAL_STRIPE.try_with(|lease| lease.stripe).unwrap_or(0);
        let counter = &self.0[stripe].0[at];
        if stripe < SHARED_STRIPES {
            counter.fetch_add(count, Ordering::Relaxed);
        } else {
            let counted = counter.load(Ordering::Relaxed);
            counter.store(counted.wrapping_add(count), Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self, at: usize) -> u64 {
        self.0.iter().map(|stripe| stripe.0[at].load(Ordering::Relaxed)).sum()
    }
}

thread_local! {
    static LOCAL_STRIPE: StripeLease = StripeLease::acquire();
}

/// The stripe that a thread uses until it exits.
struct StripeLease {
    stripe: usize,
}

/// The exclusive stripes.
struct StripePool {
    count: usize,
    /// A stripe is taken and returned under this lock, so its next owner sees the last counts.
    free: Mutex<Vec<usize>>,
}

/// Enough stripes for the threads of the listeners and of the shared runtime, except on very large
/// machines.
static STRIPE_POOL: LazyLock<StripePool> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let count = (2 * cores).clamp(4, 32);
    StripePool { count, free: Mutex::new((SHARED_STRIPES..SHARED_STRIPES + count).collect()) }
});

impl StripeLease {
    fn acquire() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let free = STRIPE_POOL.free.lock().pop();
        let stripe = free.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % SHARED_STRIPES);
        Self { stripe }
    }
}

impl Drop for StripeLease {
    fn drop(&mut self) {
        if self.stripe >= SHARED_STRIPES {
            STRIPE_POOL.free.lock().push(self.stripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Runs more threads than there are exclusive stripes, twice, so that the second round reuses
    /// the stripes of exited threads. Threads that share a stripe count at the same time, stripe by
    /// stripe; otherwise they might never contend.
    #[test]
    fn concurrent_counts_are_not_lost() {
        let (counters, times) = (Striped::<2>::new(), 4_000_000);
        let threads = STRIPE_POOL.count + 3 * SHARED_STRIPES;
        for _ in 0..2 {
            let barrier = Barrier::new(threads);
            let count = || {
                let stripe = LOCAL_STRIPE.with(|lease| lease.stripe);
                for turn in 0..=SHARED_STRIPES {
                    barrier.wait();
                    if turn == stripe.min(SHARED_STRIPES) {
                        (0..times).for_each(|_| counters.add(1, 3));
                    }
                }
            };
            thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(count)));
        }
        assert_eq!((counters.sum(0), counters.sum(1)), (0, 2 * 3 * threads as u64 * times));
    }
}
