//! Helpers: a limiter on a memory store with a manual clock, whose futures are ready at once.

#![allow(
    dead_code,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

pub(crate) mod node;
pub(crate) mod region;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::{Decision, Limiter};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::Facts;

pub(crate) fn limiter(source: &str) -> (Limiter<ManualMemoryStore>, ManualClock) {
    let clock = clock();
    let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
    (Limiter::new(store, compile_rules(source)), clock)
}

/// A manual clock at the start of an hour.
pub(crate) fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_699_999_200_000_000))
}

pub(crate) fn facts(pairs: &'static [(&'static str, &'static str)]) -> Facts<'static> {
    pairs.iter().copied().collect()
}

/// Returns the output of a future that is ready at once, as those of the memory store are.
pub(crate) fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision on a memory store must be ready at once"),
    }
}

/// `rule verdict remaining` of each reading, in order.
pub(crate) fn reading_summary(decision: &Decision) -> Vec<String> {
    decision
        .readings()
        .map(|(rule, reading)| {
            let left = reading
                .numbers
                .map_or_else(|| "-".to_owned(), |numbers| numbers.remaining.to_string());
            format!("{} {} {left}", rule.id(), reading.verdict.name())
        })
        .collect()
}
