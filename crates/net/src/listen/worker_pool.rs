//! Worker threads for connections.
//!
//! Each thread has a single-threaded runtime, and a connection stays on its thread. A request takes
//! a few microseconds. A work-stealing runtime would spend more than that on waking a second
//! thread.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

thread_local! {
    static WORKER_INDEX: Cell<usize> = const { Cell::new(0) };
}

/// Index of the current worker thread; 0 on any thread outside the pool.
pub fn worker_index() -> usize {
    WORKER_INDEX.get()
}

/// A pool of worker threads. When the last clone is dropped, the threads stop and drop their tasks.
#[derive(Clone)]
pub struct WorkerPool(Arc<[WorkerThread]>);

/// One thread.
struct WorkerThread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    _stop_on_drop: oneshot::Sender<()>,
}

/// Counts a connection on its thread until dropped.
pub struct WorkerPermit {
    connections: Arc<AtomicUsize>,
}

impl WorkerPool {
    /// Starts this many threads, at least one. Their names are `name` and a number.
    ///
    /// # Errors
    /// When the system cannot create a thread or a runtime.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        let workers = (0..threads.max(1)).map(|number| WorkerThread::start(name, number));
        workers.collect::<io::Result<_>>().map(Self)
    }

    /// Assigns a connection to the thread with the fewest connections.
    pub fn assign_worker(&self) -> Option<(&Handle, WorkerPermit)> {
        let fewest = |worker: &&WorkerThread| worker.connections.load(Ordering::Relaxed);
        let WorkerThread { runtime, connections, .. } = self.0.iter().min_by_key(fewest)?;
        connections.fetch_add(1, Ordering::Relaxed);
        Some((runtime, WorkerPermit { connections: Arc::clone(connections) }))
    }
}

impl WorkerThread {
    fn start(name: &str, number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            WORKER_INDEX.set(number);
            // The channel never carries a value; it closes when the pool is dropped.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        thread::Builder::new().name(format!("{name}-{number}")).spawn(run)?;
        Ok(Self { runtime: handle, connections: Arc::default(), _stop_on_drop: stop })
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("threads", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::mpsc;

    use super::*;

    /// Thread ID and worker index behind a runtime handle.
    async fn worker_thread_id(handle: &Handle) -> (ThreadId, usize) {
        handle.spawn(async { (thread::current().id(), worker_index()) }).await.unwrap()
    }

    #[tokio::test]
    async fn connections_go_to_least_loaded_worker() {
        let pool = WorkerPool::start("ours", 2).unwrap();
        let (first, first_permit) = pool.assign_worker().unwrap();
        let (second, second_permit) = pool.assign_worker().unwrap();
        let (first, second) = (worker_thread_id(first).await, worker_thread_id(second).await);
        assert_ne!(first.0, second.0);
        assert_eq!((first.1, second.1), (0, 1));
        drop(second_permit);
        let (again, _permit) = pool.assign_worker().unwrap();
        assert_eq!(worker_thread_id(again).await, second, "the other worker has a connection");
        drop(first_permit);
        let (again, _permit) = pool.assign_worker().unwrap();
        assert_eq!(worker_thread_id(again).await, first);
    }

    #[tokio::test]
    async fn dropping_last_handle_stops_workers() {
        let pool = WorkerPool::start("ours", 1).unwrap();
        let copy = pool.clone();
        let (alive, mut ended) = mpsc::channel::<()>(1);
        copy.assign_worker().unwrap().0.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        drop(pool);
        assert_ne!(
            worker_thread_id(copy.assign_worker().unwrap().0).await.0,
            thread::current().id()
        );
        drop(copy);
        assert_eq!(ended.recv().await, None, "tasks of the pool are dropped");
    }

    #[test]
    fn pool_has_at_least_one_worker() {
        assert!(WorkerPool::start("ours", 0).unwrap().assign_worker().is_some());
    }
}
