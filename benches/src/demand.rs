//! Demand of a given rate, whether or not earlier requests were answered.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

/// How often calls that are due begin.
pub const TICK: Duration = Duration::from_millis(2);

/// Begins `call`s at a `rate` per second until the end, and returns their results. Both get the
/// time since `start`.
///
/// # Panics
/// When a call panics.
pub async fn offer_evenly<F>(
    start: Instant,
    length: Duration,
    rate: impl Fn(Duration) -> f64 + Send,
    mut call: impl FnMut(Duration) -> F + Send,
) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let mut tick = tokio::time::interval(TICK);
    let (mut due, mut until) = (0.0, start);
    let (mut calls, mut results) = (JoinSet::new(), Vec::new());
    loop {
        tick.tick().await;
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(start);
        if elapsed >= length {
            break;
        }
        due += rate(elapsed) * now.saturating_duration_since(until).as_secs_f64();
        until = now;
        while due >= 1.0 {
            due -= 1.0;
            calls.spawn(call(elapsed));
        }
        while let Some(done) = calls.try_join_next() {
            results.push(done.expect("a call panicked"));
        }
    }
    results.extend(calls.join_all().await);
    results
}
