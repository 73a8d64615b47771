//! Connections to a server that nobody uses, kept for the next request.
//!
//! Where connections of clients stay on a thread, each thread has a shelf of its own. A connection's events are heard by
//! the thread that opened it, and whoever used it on another would have to be woken from there at every piece of an
//! answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::upstream_connection::Http1Connection;
use tidegate_net::listen::worker_index;

/// The most connections on all shelves of a server.
const MAX_IDLE_CONNECTIONS: usize = 1_024;

/// The shelves.
pub(super) struct IdleConnectionPool(Box<[Mutex<IdleConnections>]>);

/// Since when each is kept; the last one in is the first one out.
type IdleConnections = Vec<(Instant, Box<Http1Connection>)>;

impl IdleConnectionPool {
    /// One for each of so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads.clamp(1, MAX_IDLE_CONNECTIONS)).map(|_| Mutex::default()).collect())
    }

    /// Keeps a connection, unless the shelf is full.
    pub(super) fn put(&self, link: Box<Http1Connection>) {
        let most = MAX_IDLE_CONNECTIONS / self.0.len();
        let mut shelf = self.local().lock();
        if shelf.len() < most {
            shelf.push((Instant::now(), link));
        }
    }

    /// The connection that was kept last, if that is not too long ago.
    pub(super) fn take(&self, longest: Duration) -> Option<Box<Http1Connection>> {
        let (since, link) = self.local().lock().pop()?;
        // Those below it are older still, and closed by whoever tidies up.
        (since.elapsed() < longest).then_some(link)
    }

    /// Closes what has been kept for too long.
    pub(super) fn evict_expired(&self, longest: Duration) {
        let Some(oldest) = Instant::now().checked_sub(longest) else { return };
        for shelf in &self.0 {
            let mut shelf = shelf.lock();
            // Those that nobody needs are in front.
            let stale = shelf.iter().take_while(|(since, _)| *since < oldest).count();
            let stale: Vec<_> = shelf.drain(..stale).collect();
            drop(shelf);
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
        let shelves = Arc::new(IdleConnectionPool::new(2));
        shelves.put(test_connection().await);
        // The first thread of a crew is as good as this one; the second has a shelf of its own.
        let crew = WorkerPool::start("ours", 2).unwrap();
        let seats = [crew.assign_worker().unwrap(), crew.assign_worker().unwrap()];
        for (thread, finds) in [(1, false), (0, true), (0, false)] {
            let shelves = Arc::clone(&shelves);
            let taken = seats[thread].0.spawn(async move { shelves.take(LONG).is_some() });
            assert_eq!(taken.await.unwrap(), finds, "thread {thread}");
        }
    }

    #[tokio::test]
    async fn full_pool_drops_connection() {
        let shelves = IdleConnectionPool::new(MAX_IDLE_CONNECTIONS);
        shelves.put(test_connection().await);
        shelves.put(test_connection().await);
        assert!(shelves.take(LONG).is_some());
        assert!(shelves.take(LONG).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_idle_connections_are_closed() {
        let shelves = IdleConnectionPool::new(1);
        shelves.put(test_connection().await);
        tokio::time::advance(LONG).await;
        shelves.put(test_connection().await);
        tokio::time::advance(LONG / 2).await;
        shelves.evict_expired(LONG);
        assert_eq!(shelves.local().lock().len(), 1, "the older one is gone");
        assert!(shelves.take(LONG / 4).is_none(), "too old for who asks");
    }
}
