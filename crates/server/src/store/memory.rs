//! Counters in this process: swept in the background, and saved to a snapshot file if configured.

use std::sync::Arc;

use tidegate::node;
use tidegate_limiter::{Limiter, NoFallback};
use tidegate_memory::{FastClock, MemoryStore, StoreUsage};
use tidegate_redis::Stats;
use tidegate_web::ProcessStatus;
use tokio::task::JoinSet;

use super::ManagedStore;
use crate::config::Settings;
use crate::error::CommandError;
use crate::regions::RegionLinks;
use crate::snapshot::SnapshotFile;
use crate::store_calls::StoreCallMetrics;

/// Counters in this process.
pub type EmbeddedStore = MemoryStore<FastClock>;

/// Largest accepted snapshot file, as a multiple of the memory limit.
const SNAPSHOT_FACTOR: u64 = 4;

impl ManagedStore for EmbeddedStore {
    /// Counters in memory are always available, so no fallback is needed.
    type Local = NoFallback;

    fn usage(limiter: &Limiter<Self>) -> Option<StoreUsage> {
        Some(limiter.store().usage())
    }

    fn stats(_: &Limiter<Self>) -> Option<Stats> {
        None
    }

    async fn prepare(limiter: &Arc<Limiter<Self>>, settings: &Settings) {
        let Some(file) = snapshot_file(settings) else { return };
        let limiter = Arc::clone(limiter);
        // `restore` logs its result; if the task fails, the counters stay empty.
        _ = tokio::task::spawn_blocking(move || file.restore(limiter.store())).await;
    }

    fn spawn_tasks(
        limiter: &Arc<Limiter<Self>>,
        settings: &Settings,
        _: &Arc<ProcessStatus>,
        _: &Arc<StoreCallMetrics>,
        _: &Arc<RegionLinks>,
        tasks: &mut JoinSet<()>,
    ) {
        let swept = Arc::clone(limiter);
        tasks.spawn(node::sweep_periodically(move || swept.store().sweep()));
        if let Some(file) = snapshot_file(settings) {
            tasks.spawn(file.write_periodically(Arc::clone(limiter), settings.snapshot_interval));
        }
    }

    async fn close(
        limiter: &Arc<Limiter<Self>>,
        settings: &Settings,
        _: &RegionLinks,
    ) -> Result<(), CommandError> {
        match snapshot_file(settings) {
            Some(file) => file.write_in_background(limiter).await,
            None => Ok(()),
        }
    }
}

fn snapshot_file(settings: &Settings) -> Option<SnapshotFile> {
    let path = settings.snapshot.clone()?;
    // A counter takes less space in the file than in memory, but the file may stem from a larger
    // memory limit.
    let max_bytes = settings.memory_limit.0.saturating_mul(SNAPSHOT_FACTOR);
    Some(SnapshotFile::new(path, settings.secret, max_bytes))
}
