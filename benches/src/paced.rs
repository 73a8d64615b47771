//! Decisions of this process at a steady rate, and how long each takes.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::time::{Clock as _, SystemClock, Timestamp};
use tidegate_engine::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_rules::Facts;

use crate::rules::ready;

/// Decisions a second.
pub const RATE: u64 = 30_000;

/// For how long.
pub const TURN: Duration = Duration::from_secs(1);

/// Different clients.
const CLIENTS: usize = 1_000;

/// The name of a client.
#[must_use]
pub fn customer(at: usize) -> String {
    format!("customer-{at:08}")
}

/// What is known of a request of theirs.
#[must_use]
pub fn facts_of(key: &str) -> Facts<'_> {
    [("ip", "203.0.113.7"), ("api_key", key)].into_iter().collect()
}

/// The wall clock.
#[must_use]
pub fn clock() -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let clock = SystemClock::new();
    Arc::new(move || clock.now())
}

/// How long decisions take that come at a steady rate: p50, p99 and p99.9 in microseconds. `beside` decides the
/// same requests after it, and is not timed.
#[must_use]
pub fn paced(limiter: &Limiter<MemoryStore>, beside: Option<&Limiter<MemoryStore>>) -> [f64; 3] {
    let keys: Vec<String> = (0..CLIENTS).map(customer).collect();
    let (start, mut done) = (Instant::now(), 0_u64);
    let mut took = Vec::with_capacity(100_000);
    while start.elapsed() < TURN {
        let due = u64::try_from(start.elapsed().as_micros()).unwrap_or(0) * RATE / 1_000_000;
        for at in done..due {
            let facts = facts_of(&keys[usize::try_from(at).unwrap_or(0) % keys.len()]);
            let before = Instant::now();
            black_box(ready(limiter.decide(&facts, 1)));
            took.push(before.elapsed().as_nanos() as f64 / 1_000.0);
            if let Some(beside) = beside {
                black_box(ready(beside.decide(&facts, 1)));
            }
        }
        done = due;
        std::thread::sleep(Duration::from_micros(200));
    }
    took.sort_by(f64::total_cmp);
    [500, 990, 999].map(|permille| share(&took, permille))
}

/// The value that so many of a thousand do not exceed, of values in order.
#[must_use]
pub fn share(sorted: &[f64], permille: usize) -> f64 {
    sorted[(sorted.len() - 1) * permille / 1_000]
}
