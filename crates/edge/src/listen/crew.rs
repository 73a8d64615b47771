//! The threads that connections live on.
//!
//! Each has a runtime of its own, and a connection stays where it was put. What a request takes is a few
//! microseconds: a runtime that moves tasks between threads spends more on waking a second thread than that
//! thread saves.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that connections are put on. They end with the last copy of this, and what runs on them ends too.
#[derive(Clone)]
pub struct Crew(Arc<[Hand]>);

/// One thread.
struct Hand {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    _ends: oneshot::Sender<()>,
}

/// A connection's place on a thread, until it is dropped.
pub(super) struct Seat {
    connections: Arc<AtomicUsize>,
}

impl Crew {
    /// So many threads, at least one.
    ///
    /// # Errors
    /// When the system has none to give.
    pub fn start(threads: usize) -> io::Result<Self> {
        (0..threads.max(1)).map(Hand::start).collect::<io::Result<_>>().map(Self)
    }

    /// A seat on the thread that has the fewest connections.
    pub(super) fn seat(&self) -> Option<(&Handle, Seat)> {
        let fewest = |hand: &&Hand| hand.connections.load(Ordering::Relaxed);
        let Hand { runtime, connections, .. } = self.0.iter().min_by_key(fewest)?;
        connections.fetch_add(1, Ordering::Relaxed);
        Some((runtime, Seat { connections: Arc::clone(connections) }))
    }
}

impl Hand {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let work = move || {
            // An error says that the crew is gone.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        thread::Builder::new().name(format!("door-{number}")).spawn(work)?;
        Ok(Self { runtime: handle, connections: Arc::default(), _ends: ends })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("threads", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::mpsc;

    use super::*;

    /// On which thread a seat is.
    async fn thread(handle: &Handle) -> ThreadId {
        handle.spawn(async { thread::current().id() }).await.unwrap()
    }

    #[tokio::test]
    async fn connections_are_spread_and_seats_are_free_again() {
        let crew = Crew::start(2).unwrap();
        let (first, kept) = crew.seat().unwrap();
        let (second, left) = crew.seat().unwrap();
        let (first, second) = (thread(first).await, thread(second).await);
        assert_ne!(first, second);
        drop(left);
        let (again, _stays) = crew.seat().unwrap();
        assert_eq!(thread(again).await, second, "the other one is taken");
        drop(kept);
        let (again, _stays) = crew.seat().unwrap();
        assert_eq!(thread(again).await, first);
    }

    #[tokio::test]
    async fn what_runs_on_them_ends_with_the_last_copy() {
        let crew = Crew::start(1).unwrap();
        let copy = crew.clone();
        let (alive, mut ended) = mpsc::channel::<()>(1);
        copy.seat().unwrap().0.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        drop(crew);
        assert!(thread(copy.seat().unwrap().0).await != thread::current().id());
        drop(copy);
        assert_eq!(ended.recv().await, None, "whoever runs there is dropped");
    }

    #[test]
    fn there_is_always_somebody() {
        assert!(Crew::start(0).unwrap().seat().is_some());
    }
}
