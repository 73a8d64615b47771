//! Sweeps the memory store: a few shards per tick, all of them in about 1.5 seconds.

use std::time::Duration;

const TICK: Duration = Duration::from_millis(20);

/// Number of ticks in which every shard is visited once.
const TICKS_PER_ROUND: usize = 75;

/// Number of shards swept before yielding to other tasks.
const SHARDS_PER_YIELD: usize = 16;

/// Sweeps until dropped; each call of `sweep` visits one shard and returns the number of shards.
pub(crate) async fn run(sweep: impl Fn() -> usize) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut shards = 1_usize;
    loop {
        tick.tick().await;
        for step in 1..=shards.div_ceil(TICKS_PER_ROUND) {
            shards = sweep();
            if step % SHARDS_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}
