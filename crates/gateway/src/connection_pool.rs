//! Idle connections to a server, kept for the next request.
//!
//! If client connections are pinned to worker threads, each thread has its own pool. A connection's
//! I/O events arrive on the thread that opened it. A task on another thread would need a
//! cross-thread wake-up for every piece of a response.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::upstream_connection::Http1Connection;
use tidegate_net::listen::worker_index;

/// The maximum number of idle connections to a server, over all threads.
const MAX_IDLE_CONNECTIONS: usize = 1_024;

/// One pool per worker thread.
pub(super) struct ConnectionPool(Box<[Mutex<IdleConnections>]>);

/// Each connection with the time it became idle. Last in, first out.
type IdleConnections = Vec<(Instant, Box<Http1Connection>)>;

impl ConnectionPool {
    /// Creates a pool for each of `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads.clamp(1, MAX_IDLE_CONNECTIONS)).map(|_| Mutex::default()).collect())
    }

    /// Adds a connection, unless this thread's pool is full.
    pub(super) fn put(&self, connection: Box<Http1Connection>) {
        let max_len = MAX_IDLE_CONNECTIONS / self.0.len();
        let mut idle = self.local().lock();
        if idle.len() < max_len {
            idle.push((Instant::now(), connection));
        }
    }

    /// Takes the connection that became idle last, unless it has been idle for `max_idle` or
    /// longer.
    pub(super) fn take(&self, max_idle: Duration) -> Option<Box<Http1Connection>> {
        let (since, connection) = self.local().lock().pop()?;
        // The others have been idle even longer; `evict_expired` closes them.
        (since.elapsed() < max_idle).then_some(connection)
    }

    /// Closes connections that have been idle for longer than `max_idle`.
    pub(super) fn evict_expired(&self, max_idle: Duration) {
        let Some(oldest) = Instant::now().checked_sub(max_idle) else { return };
        for idle in &self.0 {
            let mut idle = idle.lock();
            // The longest idle connections are at the front.
            let stale = idle.iter().take_while(|(since, _)| *since < oldest).count();
            let stale: Vec<_> = idle.drain(..stale).collect();
            drop(idle);
            drop(stale);
        }
    }

    fn local(&self) -> &Mutex<IdleConnections> {
        &self.0[worker_index() % self.0.len()]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream_connection::tests::test_connection;
    use tidegate_net::listen::WorkerPool;

    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn pool_is_local_to_worker_thread() {
        let pool = Arc::new(ConnectionPool::new(2));
        pool.put(test_connection().await);
        // The first worker has the index of this thread, 0, and shares its pool; the second has
        // another.
        let workers = WorkerPool::start("ours", 2).unwrap();
        let assigned = [workers.assign_worker().unwrap(), workers.assign_worker().unwrap()];
        for (thread, finds) in [(1, false), (0, true), (0, false)] {
            let pool = Arc::clone(&pool);
            let taken = assigned[thread].0.spawn(async move { pool.take(LONG).is_some() });
            assert_eq!(taken.await.unwrap(), finds, "thread {thread}");
        }
    }

    #[tokio::test]
    async fn full_pool_drops_connection() {
        let pool = ConnectionPool::new(MAX_IDLE_CONNECTIONS);
        pool.put(test_connection().await);
        pool.put(test_connection().await);
        assert!(pool.take(LONG).is_some());
        assert!(pool.take(LONG).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_idle_connections_are_closed() {
        let pool = ConnectionPool::new(1);
        pool.put(test_connection().await);
        tokio::time::advance(LONG).await;
        pool.put(test_connection().await);
        tokio::time::advance(LONG / 2).await;
        pool.evict_expired(LONG);
        assert_eq!(pool.local().lock().len(), 1, "the older one was evicted");
        assert!(pool.take(LONG / 4).is_none(), "idle for longer than the limit");
    }
}
