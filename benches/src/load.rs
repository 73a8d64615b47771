//! Key streams, and threads that work through them for a while.
//!
//! A stream holds the text of its keys in the order in which they come: a limiter is asked about a key
//! that has just arrived in a request, not about one that lies somewhere in memory.

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

/// The length of every key.
const KEY_BYTES: usize = 20;

/// Keys as clients send them.
#[must_use]
pub fn key(index: usize) -> String {
    format!("api-key-{index:012}")
}

/// Keys in the order in which they come.
#[derive(Debug)]
pub struct Stream(String);

impl Stream {
    /// Every key once.
    #[must_use]
    pub fn of_all(count: usize) -> Self {
        Self((0..count).map(key).collect())
    }

    /// Draws from so many keys, the same for the same seed.
    #[must_use]
    pub fn drawn(spread: Spread, count: usize, seed: u64) -> Self {
        Self(draws(spread, count, seed).into_iter().map(key).collect())
    }

    /// Shows each key in turn, in a string of its own as a request would bring it.
    pub fn each(&self, mut see: impl FnMut(&String)) {
        let mut key = String::with_capacity(KEY_BYTES);
        for at in (0..self.0.len()).step_by(KEY_BYTES) {
            key.clear();
            key.push_str(&self.0[at..at + KEY_BYTES]);
            see(&key);
        }
    }
}

fn draws(spread: Spread, count: usize, seed: u64) -> Vec<usize> {
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

/// How often a thread looks whether it is to stop.
const STRIDE: u64 = 1_024;

/// Calls `work` for each stream's keys on a thread of its own for a while; returns calls per second.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn run(streams: &[Stream], time: Duration, work: &(dyn Fn(&String) + Sync)) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(streams.len() + 1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| {
                scope.spawn(|| {
                    start.wait();
                    let (begun, mut calls, mut ended) = (Instant::now(), 0_u64, None);
                    while ended.is_none() {
                        stream.each(|key| {
                            if ended.is_some() {
                                return;
                            }
                            work(key);
                            calls += 1;
                            if calls % STRIDE == 0 && stop.load(Ordering::Relaxed) {
                                ended = Some(begun.elapsed());
                            }
                        });
                    }
                    calls as f64 / ended.unwrap_or_default().as_secs_f64()
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}
