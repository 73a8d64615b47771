//! Counters in this process: kept tidy, and in a file over a restart if asked for.

use std::sync::Arc;

use tidegate_edge::Status;
use tidegate_engine::{Limiter, NoLocal};
use tidegate_memory::{FastClock, MemoryStore, Usage};
use tidegate_redis::Stats;
use tokio::task::JoinSet;

use super::Tended;
use crate::config::Settings;
use crate::failure::Failure;
use crate::snapshot::SnapshotFile;
use crate::sweep;

/// Counters in this process.
pub(crate) type Embedded = MemoryStore<FastClock>;

/// How many times the limit of memory a snapshot may be large.
const SNAPSHOT_FACTOR: u64 = 4;

impl Tended for Embedded {
    /// It never is gone.
    type Local = NoLocal;

    fn usage(limiter: &Limiter<Self>) -> Option<Usage> {
        Some(limiter.store().usage())
    }

    fn stats(_: &Limiter<Self>) -> Option<Stats> {
        None
    }

    async fn prepare(limiter: &Arc<Limiter<Self>>, settings: &Settings) {
        let Some(file) = snapshot(settings) else { return };
        let limiter = Arc::clone(limiter);
        // It logs what it finds; that it cannot be done leaves fresh counters.
        _ = tokio::task::spawn_blocking(move || file.restore(limiter.store())).await;
    }

    fn keep(
        limiter: &Arc<Limiter<Self>>,
        settings: &Settings,
        _: &Arc<Status>,
        keepers: &mut JoinSet<()>,
    ) {
        let swept = Arc::clone(limiter);
        keepers.spawn(sweep::run(move || swept.store().sweep()));
        if let Some(file) = snapshot(settings) {
            keepers.spawn(file.keep(Arc::clone(limiter), settings.snapshot_interval));
        }
    }

    async fn close(limiter: &Arc<Limiter<Self>>, settings: &Settings) -> Result<(), Failure> {
        match snapshot(settings) {
            Some(file) => file.write_aside(limiter).await,
            None => Ok(()),
        }
    }
}

fn snapshot(settings: &Settings) -> Option<SnapshotFile> {
    let path = settings.snapshot.clone()?;
    // A state takes less in the file than in memory; the file may be of a larger limit than today's.
    let max_bytes = settings.memory_limit.0.saturating_mul(SNAPSHOT_FACTOR);
    Some(SnapshotFile::new(path, settings.secret, max_bytes))
}
