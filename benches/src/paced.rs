//! Measures the latency of in-process decisions at a steady rate.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::time::{Clock as _, SystemClock, Timestamp};
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_rules::Facts;

use crate::rules::poll_ready;

/// Decisions per second.
pub const RATE: u64 = 30_000;

/// Length of one turn.
pub const TURN: Duration = Duration::from_secs(1);

/// Number of distinct clients.
const CLIENTS: usize = 1_000;

/// The API key of the client with this index.
#[must_use]
pub fn client_name(index: usize) -> String {
    format!("customer-{index:08}")
}

/// The facts of a request from this client.
#[must_use]
pub fn client_facts(key: &str) -> Facts<'_> {
    [("ip", "203.0.113.7"), ("api_key", key)].into_iter().collect()
}

/// A closure that reads the wall clock.
#[must_use]
pub fn wall_clock() -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let clock = SystemClock::new();
    Arc::new(move || clock.now())
}

/// Makes decisions at a steady rate for one turn and returns their p50, p99 and p99.9 latency in
/// microseconds. After each decision, `untimed` decides the same request without being timed, to
/// add its background work.
#[must_use]
pub fn measure_paced(
    limiter: &Limiter<MemoryStore>,
    untimed: Option<&Limiter<MemoryStore>>,
) -> [f64; 3] {
    let keys: Vec<String> = (0..CLIENTS).map(client_name).collect();
    let (start, mut done) = (Instant::now(), 0_u64);
    let mut latencies = Vec::with_capacity(100_000);
    while start.elapsed() < TURN {
        let due = u64::try_from(start.elapsed().as_micros()).unwrap_or(0) * RATE / 1_000_000;
        for at in done..due {
            let facts = client_facts(&keys[usize::try_from(at).unwrap_or(0) % keys.len()]);
            let before = Instant::now();
            black_box(poll_ready(limiter.decide(&facts, 1)));
            latencies.push(before.elapsed().as_nanos() as f64 / 1_000.0);
            if let Some(untimed) = untimed {
                black_box(poll_ready(untimed.decide(&facts, 1)));
            }
        }
        done = due;
        std::thread::sleep(Duration::from_micros(200));
    }
    latencies.sort_by(f64::total_cmp);
    [500, 990, 999].map(|permille| percentile(&latencies, permille))
}

/// The percentile of sorted values; `permille` is 990 for p99.
#[must_use]
pub fn percentile(sorted: &[f64], permille: usize) -> f64 {
    sorted[(sorted.len() - 1) * permille / 1_000]
}
