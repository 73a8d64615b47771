//! One node of a fleet: the limiter of a process whose counters are in Redis, and the background
//! tasks that it needs to decide correctly.
//!
//! [`LimiterBuilder::redis`](crate::LimiterBuilder::redis) does all of this. This module is for
//! programs that assemble the limiter themselves, such as the Tidegate server.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::store::Store;
use tidegate_core::time::Timestamp;
use tidegate_limiter::{DEFAULT_LEASE_BYTES, LeaseClock, Limiter, StoreCallReport};
use tidegate_memory::MemoryStore;
use tidegate_redis::{BreakerState, RedisStore};
use tidegate_rules::RuleSet;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// How often local charges are written back to the store.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);

/// How often ended leases are returned; well below the shortest useful lease.
const LEASE_SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// How often a few shards of a memory store are swept.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// Number of intervals in which every shard is visited once: about 1.5 seconds.
const INTERVALS_PER_ROUND: usize = 75;

/// Number of shards swept before yielding to other tasks.
const SHARDS_PER_YIELD: usize = 16;

/// The limiter of a node that shares its store. `local` counts while the store is down. Start its
/// tasks with [`spawn_tasks`].
#[must_use]
pub fn shared_limiter(
    store: RedisStore,
    local: MemoryStore,
    rules: RuleSet,
) -> Limiter<RedisStore, MemoryStore> {
    Limiter::new(store, rules.for_shared_store())
        .with_local(local)
        .with_leases(LeaseClock::new(since_boot), DEFAULT_LEASE_BYTES)
}

/// Starts the background tasks of such a limiter. `on_call` is called for each call to the store
/// that the node makes for its leased and asynchronous counters, with its duration.
pub fn spawn_tasks(
    limiter: &Arc<Limiter<RedisStore, MemoryStore>>,
    on_call: impl Fn(&StoreCallReport, Duration) + Clone + Send + Sync + 'static,
    tasks: &mut JoinSet<()>,
) {
    let swept = Arc::clone(limiter);
    tasks.spawn(sweep_periodically(move || swept.local().map_or(1, MemoryStore::sweep)));
    tasks.spawn(settle_debts(Arc::clone(limiter)));
    tasks.spawn(run_lease_calls(Arc::clone(limiter), on_call));
    tasks.spawn(sweep_leases(Arc::clone(limiter)));
}

/// Sweeps a memory store until dropped; each call of `sweep` visits one shard and returns the
/// number of shards.
pub async fn sweep_periodically(sweep: impl Fn() -> usize) {
    let mut tick = interval(SWEEP_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shards = 1_usize;
    loop {
        tick.tick().await;
        for step in 1..=shards.div_ceil(INTERVALS_PER_ROUND) {
            shards = sweep();
            if step % SHARDS_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Writes local charges back to the store, returns unspent units and leaves the fleet, before the
/// process ends. The caller limits how long this takes.
pub async fn leave_fleet(limiter: &Arc<Limiter<RedisStore, MemoryStore>>) {
    while limiter.has_unsettled() && is_any_server_reachable(limiter.store()) {
        if limiter.settle().await == 0 {
            sleep(SETTLE_INTERVAL).await;
        }
    }
    return_units(limiter).await;
    limiter.store().leave().await;
}

/// Returns all units to the store.
async fn return_units<S: Store + 'static, L: Store + 'static>(limiter: &Arc<Limiter<S, L>>) {
    limiter.retire_leases();
    let mut calls = JoinSet::new();
    while let Some(task) = limiter.pop_lease_task() {
        let limiter = Arc::clone(limiter);
        calls.spawn(async move { limiter.run_lease_task(task).await });
    }
    calls.join_all().await;
}

/// Whether requests are sent to any server of the store, at least in part.
fn is_any_server_reachable(store: &RedisStore) -> bool {
    store.stats().servers.iter().any(|(_, breaker)| *breaker != BreakerState::Open)
}

/// Keeps the local shares in line with the number of nodes, and writes back what they admitted
/// while the store was down.
async fn settle_debts<S: Store, L: Store>(limiter: Arc<Limiter<S, L>>) {
    loop {
        sleep(SETTLE_INTERVAL).await;
        limiter.sync_node_count().await;
        while limiter.has_unsettled() && limiter.settle().await > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Makes the calls to the store, each in its own task so that none waits for another.
async fn run_lease_calls<S: Store + 'static, L: Store + 'static>(
    limiter: Arc<Limiter<S, L>>,
    on_call: impl Fn(&StoreCallReport, Duration) + Clone + Send + Sync + 'static,
) {
    loop {
        let task = limiter.next_lease_task().await;
        let (limiter, on_call) = (Arc::clone(&limiter), on_call.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            let report = limiter.run_lease_task(task).await;
            on_call(&report, started.elapsed());
        });
    }
}

async fn sweep_leases<S: Store, L: Store>(limiter: Arc<Limiter<S, L>>) {
    loop {
        sleep(LEASE_SWEEP_INTERVAL).await;
        limiter.sweep_leases();
    }
}

/// The time since the machine started, including suspensions where the system has such a clock. It
/// counts on while the process is stopped, and steps of the wall clock do not move it.
fn since_boot() -> Timestamp {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    let micros = secs.unwrap_or_default().saturating_mul(1_000_000);
    Timestamp::from_micros(micros.saturating_add(nanos.unwrap_or_default() / 1_000))
}
