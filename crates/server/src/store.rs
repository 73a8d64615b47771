//! The stores that can be configured, with their background tasks. The rest of the server uses them
//! through `ManagedStore`.

mod memory;
mod redis;

use std::sync::Arc;

use tidegate_core::store::Store;
use tidegate_limiter::Limiter;
use tidegate_memory::StoreUsage;
use tidegate_redis::Stats;
use tidegate_web::ProcessStatus;
use tokio::task::JoinSet;

use crate::config::Settings;
use crate::error::CommandError;
use crate::regions::RegionLinks;
pub use crate::store_calls::StoreCallMetrics;
pub use memory::EmbeddedStore;
pub use redis::{SharedStore, options, shared_limiter, spawn_limiter_tasks};

/// A store with its background tasks.
pub(crate) trait ManagedStore: Store + Sized + 'static {
    /// Where `on_fail: local` counts while the store is down.
    type Local: Store + 'static;

    /// Memory usage of the counters in this process, if there are any.
    fn usage(limiter: &Limiter<Self, Self::Local>) -> Option<StoreUsage>;

    /// Statistics of calls to remote servers, if there are any.
    fn stats(limiter: &Limiter<Self, Self::Local>) -> Option<Stats>;

    /// Runs before the listeners open.
    fn prepare(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
    ) -> impl Future<Output = ()> + Send;

    /// Starts the background tasks.
    fn spawn_tasks(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
        status: &Arc<ProcessStatus>,
        calls: &Arc<StoreCallMetrics>,
        regions: &Arc<RegionLinks>,
        tasks: &mut JoinSet<()>,
    );

    /// Runs after the listeners have closed.
    ///
    /// # Errors
    /// When counters should have been saved and were not.
    fn close(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
        regions: &RegionLinks,
    ) -> impl Future<Output = Result<(), CommandError>> + Send;
}
