//! The stores that settings name, and what each needs beside the doors. The only place that names a
//! concrete store.

mod memory;
mod redis;

use std::sync::Arc;

use tidegate_core::store::Store;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_memory::Usage;
use tidegate_redis::Stats;
use tokio::task::JoinSet;

use crate::config::Settings;
use crate::failure::Failure;

pub(crate) use memory::Embedded;
pub(crate) use redis::{Shared, options};

/// A store with its housekeeping.
pub(crate) trait Tended: Store + Sized + 'static {
    /// Where `on_fail: local` counts while the store is gone.
    type Local: Store + 'static;

    /// What the counters in this process take, if there are any.
    fn usage(limiter: &Limiter<Self, Self::Local>) -> Option<Usage>;

    /// What was counted of calls to other servers, if there are any.
    fn stats(limiter: &Limiter<Self, Self::Local>) -> Option<Stats>;

    /// What there is to do before the doors open.
    fn prepare(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
    ) -> impl Future<Output = ()> + Send;

    /// What goes on while they are open.
    fn keep(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
        status: &Arc<Status>,
        keepers: &mut JoinSet<()>,
    );

    /// What there is to do after they have closed.
    ///
    /// # Errors
    /// When counters were to be kept and are not.
    fn close(
        limiter: &Arc<Limiter<Self, Self::Local>>,
        settings: &Settings,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}
