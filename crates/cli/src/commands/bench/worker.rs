//! A benchmark thread, which makes decisions as fast as it can.

use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;

use super::sample_requests::SampleRequests;
use tidegate_server::clock;

/// One decision in this many is timed.
const SAMPLE_INTERVAL: u32 = 64;

/// Maximum number of timings kept, to bound memory; enough for percentiles.
const MAX_SAMPLES: usize = 1 << 20;

/// The results of a worker.
#[derive(Debug, Default)]
pub(super) struct WorkerTally {
    pub(super) allowed: u64,
    pub(super) refused: u64,
    pub(super) samples_ns: Vec<u64>,
}

impl WorkerTally {
    /// Adds up two tallies.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.samples_ns.extend(other.samples_ns);
        self
    }

    fn record(&mut self, allowed: bool) {
        let counter = if allowed { &mut self.allowed } else { &mut self.refused };
        *counter += 1;
    }
}

/// Makes decisions until `stop` is set.
pub(super) fn run(
    limiter: &Limiter<MemoryStore>,
    requests: &SampleRequests,
    seed: u64,
    stop: &AtomicBool,
) -> WorkerTally {
    let mut tally = WorkerTally::default();
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut decide = || {
        random = xorshift(random);
        let facts = requests.facts(random);
        black_box(poll_ready(limiter.decide(&facts, 1))).is_allowed()
    };
    while !stop.load(Ordering::Relaxed) {
        for _ in 1..SAMPLE_INTERVAL {
            tally.record(decide());
        }
        let start = clock::now();
        tally.record(decide());
        if tally.samples_ns.len() < MAX_SAMPLES {
            tally.samples_ns.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    tally
}

/// Polls a future that is ready at once, as decisions of the in-memory store are.
fn poll_ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

const fn xorshift(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}
