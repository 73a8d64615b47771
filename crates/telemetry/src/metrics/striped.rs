//! Counters that threads count into without waiting for each other.
//!
//! A thread has a stripe of its own as long as there are any, and then counts by a plain load and store: an atomic
//! addition takes as long as everything else that is done to count a decision. Those that come later share a few
//! stripes, and add atomically.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// How many stripes are shared by the threads that have none of their own.
const SHARED_STRIPES: usize = 4;

/// So many counters, in stripes: first those that are shared.
pub(super) struct Striped<const N: usize>(Box<[CounterStripe<N>]>);

/// Two cache lines apart: processors fetch them in pairs.
#[repr(align(128))]
struct CounterStripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    pub(super) fn new() -> Self {
        let stripe = |_| CounterStripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..SHARED_STRIPES + STRIPE_POOL.count).map(stripe).collect())
    }

    #[inline]
    pub(super) fn add(&self, at: usize, count: u64) {
        // A thread that is ending has given its seat up.
        let stripe = LOCAL_STRIPE.try_with(|seat| seat.stripe).unwrap_or(0);
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

/// The stripe that a thread counts into, until it ends.
struct StripeLease {
    stripe: usize,
}

/// The stripes that threads have for themselves.
struct StripePool {
    count: usize,
    /// Taken and given back under a lock, so that who takes one sees what was counted there.
    free: Mutex<Vec<usize>>,
}

/// Enough for the threads of the doors and those of the shared runtime, on machines that are not very large.
static STRIPE_POOL: LazyLock<StripePool> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let count = (2 * cores).clamp(4, 32);
    StripePool { count, free: Mutex::new((SHARED_STRIPES..SHARED_STRIPES + count).collect()) }
});

impl StripeLease {
    fn acquire() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = STRIPE_POOL.free.lock().pop();
        let stripe = own.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % SHARED_STRIPES);
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

    /// More at once than there are seats, and more after them, who take over the seats of those who ended. Those who
    /// share a stripe count at the same time, stripe by stripe: otherwise they might never meet.
    #[test]
    fn concurrent_counts_are_not_lost() {
        let (counters, times) = (Striped::<2>::new(), 4_000_000);
        let threads = STRIPE_POOL.count + 3 * SHARED_STRIPES;
        for _ in 0..2 {
            let together = Barrier::new(threads);
            let count = || {
                let stripe = LOCAL_STRIPE.with(|seat| seat.stripe);
                for turn in 0..=SHARED_STRIPES {
                    together.wait();
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
