//! Keeps the memory store tidy: a few shards at a time, a whole round in about a second and a half.

use std::time::Duration;

const TICK: Duration = Duration::from_millis(20);

/// Ticks in which every shard is visited once.
const TICKS_A_ROUND: usize = 75;

/// Shards looked at before other tasks of the worker get their turn.
const AT_ONCE: usize = 16;

/// Sweeps until it is dropped; a step says how many shards there are.
pub(crate) async fn run(sweep: impl Fn() -> usize) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut shards = 1_usize;
    loop {
        tick.tick().await;
        for step in 1..=shards.div_ceil(TICKS_A_ROUND) {
            shards = sweep();
            if step % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}
