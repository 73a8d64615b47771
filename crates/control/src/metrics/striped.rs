//! Counters that threads count into without waiting for each other: one stripe for each thread, as far as there
//! are enough.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many stripes there are.
const STRIPES: usize = 8;

/// So many counters, in stripes.
pub(super) struct Striped<const N: usize>(Box<[Stripe<N>; STRIPES]>);

/// Two cache lines apart: processors fetch them in pairs.
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    pub(super) fn new() -> Self {
        let stripe = |_| Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self(Box::new(std::array::from_fn(stripe)))
    }

    pub(super) fn add(&self, at: usize, count: u64) {
        self.0[stripe()].0[at].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn sum(&self, at: usize) -> u64 {
        self.0.iter().map(|stripe| stripe.0[at].load(Ordering::Relaxed)).sum()
    }
}

/// The stripe of this thread.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    // A thread that is ending counts into the first.
    OWN.try_with(|own| *own).unwrap_or(0)
}
