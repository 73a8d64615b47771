//! Key streams, and threads that process them for a fixed time.
//!
//! A stream stores its keys contiguously, in order of use. This models a server: a key has just
//! arrived in a request, so it is in the CPU cache.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of keys in a stream before it repeats: enough to miss the CPU caches at a million keys.
const DRAWS: usize = 1 << 21;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDistribution {
    /// All keys are equally likely.
    Uniform,
    /// The k-th key has a weight of 1/k.
    Zipf,
}

impl KeyDistribution {
    /// Name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        }
    }
}

/// Length of every key, in bytes.
const KEY_BYTES: usize = 20;

/// The key with this index, in the form of an API key.
#[must_use]
pub fn key(index: usize) -> String {
    format!("api-key-{index:012}")
}

/// A sequence of keys in order of use.
#[derive(Debug)]
pub struct KeyStream(String);

impl KeyStream {
    /// Every key once.
    #[must_use]
    pub fn every_key(count: usize) -> Self {
        Self((0..count).map(key).collect())
    }

    /// Random draws from `count` keys; the same seed gives the same stream.
    #[must_use]
    pub fn random_keys(spread: KeyDistribution, count: usize, seed: u64) -> Self {
        Self(draw_indices(spread, count, seed).into_iter().map(key).collect())
    }

    /// The number of keys until the stream repeats.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len() / KEY_BYTES
    }

    /// Whether there are no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key at an index below [`len`](Self::len).
    #[must_use]
    pub fn key_at(&self, index: usize) -> &str {
        &self.0[index * KEY_BYTES..(index + 1) * KEY_BYTES]
    }

    /// Calls `visit` with each key in turn, copied into a string as a request would provide it.
    pub fn for_each_key(&self, mut visit: impl FnMut(&String)) {
        let mut key = String::with_capacity(KEY_BYTES);
        for at in (0..self.0.len()).step_by(KEY_BYTES) {
            key.clear();
            key.push_str(&self.0[at..at + KEY_BYTES]);
            visit(&key);
        }
    }
}

fn draw_indices(spread: KeyDistribution, count: usize, seed: u64) -> Vec<usize> {
    let mut random = XorShift(seed | 1);
    let mut weights: Vec<f64> = Vec::new();
    if spread == KeyDistribution::Zipf {
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

/// A thread checks the stop flag once per this many calls.
const STOP_CHECK_INTERVAL: u64 = 1_024;

/// Calls `work` for the keys of each stream, one thread per stream, for the given time. Returns
/// calls per second.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn run(streams: &[KeyStream], time: Duration, work: &(dyn Fn(&String) + Sync)) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(streams.len() + 1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| {
                scope.spawn(|| {
                    start.wait();
                    let (begun, mut calls, mut ended) = (Instant::now(), 0_u64, None);
                    while ended.is_none() {
                        stream.for_each_key(|key| {
                            if ended.is_some() {
                                return;
                            }
                            work(key);
                            calls += 1;
                            if calls % STOP_CHECK_INTERVAL == 0 && stop.load(Ordering::Relaxed) {
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
