//! Key streams, and threads that work through them for a while.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Draws that a stream holds before it repeats: enough to miss the caches at a million keys.
const DRAWS: usize = 1 << 21;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All alike.
    Uniform,
    /// The k-th key with a weight of 1/k.
    Zipf,
}

impl Spread {
    /// The name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        }
    }
}

/// Keys as clients send them.
#[must_use]
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("api-key-{i:012}")).collect()
}

/// Indexes into `count` keys, the same for the same seed.
#[must_use]
pub fn stream(spread: Spread, count: usize, seed: u64) -> Vec<u32> {
    let mut random = XorShift(seed | 1);
    let mut weights: Vec<f64> = Vec::new();
    if spread == Spread::Zipf {
        let mut sum = 0.0;
        weights = (1..=count)
            .map(|k| {
                sum += 1.0 / k as f64;
                sum
            })
            .collect();
    }
    (0..DRAWS)
        .map(|_| match weights.last() {
            None => usize::try_from(random.next()).unwrap_or(0) % count,
            Some(total) => {
                let at = random.unit() * total;
                weights.partition_point(|weight| *weight < at).min(count - 1)
            }
        })
        .map(|index| u32::try_from(index).unwrap_or(u32::MAX))
        .collect()
}

struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 53) as f64
    }
}

/// Calls `work` from each stream on a thread of its own for a while; returns calls per second.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn run(streams: &[Vec<u32>], time: Duration, work: &(dyn Fn(u32) + Sync)) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(streams.len() + 1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| {
                scope.spawn(|| {
                    start.wait();
                    let (begun, mut calls) = (Instant::now(), 0_u64);
                    for chunk in stream.chunks(1_024).cycle() {
                        chunk.iter().for_each(|index| work(*index));
                        calls += chunk.len() as u64;
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    calls as f64 / begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}
