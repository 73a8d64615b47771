//! Background tasks of leases: calls to the store, and the return of units that were not spent.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::Store;
use tidegate_limiter::Limiter;
use tokio::task::JoinSet;

use crate::clock;
use crate::store_calls::StoreCallMetrics;

/// How often ended leases are returned; well below the shortest useful lease.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the tasks.
pub(super) fn spawn<S: Store + 'static, L: Store + 'static>(
    limiter: &Arc<Limiter<S, L>>,
    calls: &Arc<StoreCallMetrics>,
    tasks: &mut JoinSet<()>,
) {
    tasks.spawn(run_calls(Arc::clone(limiter), Arc::clone(calls)));
    tasks.spawn(sweep_leases(Arc::clone(limiter)));
}

/// Returns all units to the store before the node stops. The caller limits how long this takes.
pub(super) async fn return_units<S: Store + 'static, L: Store + 'static>(
    limiter: &Arc<Limiter<S, L>>,
) {
    limiter.retire_leases();
    let mut calls = JoinSet::new();
    while let Some(task) = limiter.pop_lease_task() {
        let limiter = Arc::clone(limiter);
        calls.spawn(async move { limiter.run_lease_task(task).await });
    }
    calls.join_all().await;
}

/// Makes the calls to the store, each in its own task so that none waits for another.
async fn run_calls<S: Store + 'static, L: Store + 'static>(
    limiter: Arc<Limiter<S, L>>,
    calls: Arc<StoreCallMetrics>,
) {
    loop {
        let task = limiter.next_lease_task().await;
        let (limiter, calls) = (Arc::clone(&limiter), Arc::clone(&calls));
        tokio::spawn(async move {
            let started = clock::now();
            let report = limiter.run_lease_task(task).await;
            calls.record(&report, started.elapsed());
        });
    }
}

async fn sweep_leases<S: Store, L: Store>(limiter: Arc<Limiter<S, L>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        limiter.sweep_leases();
    }
}
