//! The stores that a limiter can keep its counters in.

use std::fmt::Debug;

use tidegate_core::store::Store;
use tidegate_core::time::Clock;
use tidegate_limiter::NoFallback;
use tidegate_memory::MemoryStore;

/// A store that a [`Limiter`](crate::Limiter) can keep its counters in: [`MemoryStore`], or
/// `RedisStore` with the feature `redis`. Other crates cannot implement it.
///
/// ```
/// use tidegate::{CounterStore, Facts, Limiter};
///
/// /// Works with counters in this process and in Redis.
/// async fn may_send<S: CounterStore>(limiter: &Limiter<S>, user: &str) -> bool {
///     limiter.check(&Facts::from([("user_id", user)])).await.is_allowed()
/// }
/// ```
pub trait CounterStore: Store + Debug + Sized + sealed::Sealed + 'static {
    /// Where rules with `on_fail: local` count while the store is unreachable.
    type Local: Store + Debug + 'static;

    /// The background tasks of the store.
    #[doc(hidden)]
    type Tasks: Debug + Default + Send + Sync;

    /// Removes some expired counters.
    #[doc(hidden)]
    fn sweep_step(&self);
}

mod sealed {
    pub trait Sealed {}
}

impl<C> sealed::Sealed for MemoryStore<C> {}

impl<C: Clock + Debug + 'static> CounterStore for MemoryStore<C> {
    type Local = NoFallback;
    type Tasks = ();

    fn sweep_step(&self) {
        self.sweep();
    }
}

#[cfg(feature = "redis")]
impl sealed::Sealed for tidegate_redis::RedisStore {}

#[cfg(feature = "redis")]
impl CounterStore for tidegate_redis::RedisStore {
    type Local = MemoryStore;
    type Tasks = tokio::task::JoinSet<()>;

    /// Counters expire in Redis, and a task sweeps the local ones.
    fn sweep_step(&self) {}
}
