//! The threads that connections live on.
//!
//! Each has a runtime of its own, and a connection stays where it was put. What a request takes is a few
//! microseconds: a runtime that moves tasks between threads spends more on waking a second thread than that
//! thread saves.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Which thread of its crew this is, counted from 0, as others than a crew's are too.
pub(crate) fn number() -> usize {
    NUMBER.get()
}

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
pub(crate) struct Seat {
    connections: Arc<AtomicUsize>,
}

impl Crew {
    /// So many threads, at least one, of a name by which the system knows them.
    ///
    /// # Errors
    /// When the system has none to give.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        let hands = (0..threads.max(1)).map(|number| Hand::start(name, number));
        hands.collect::<io::Result<_>>().map(Self)
    }

    /// A seat on the thread that has the fewest connections.
    pub(crate) fn seat(&self) -> Option<(&Handle, Seat)> {
        let fewest = |hand: &&Hand| hand.connections.load(Ordering::Relaxed);
        let Hand { runtime, connections, .. } = self.0.iter().min_by_key(fewest)?;
        connections.fetch_add(1, Ordering::Relaxed);
        Some((runtime, Seat { connections: Arc::clone(connections) }))
    }
}

impl Hand {
    fn start(name: &str, number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let work = move || {
            NUMBER.set(number);
            // An error says that the crew is gone.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        thread::Builder::new().name(format!("{name}-{number}")).spawn(work)?;
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
    async fn thread(handle: &Handle) -> (ThreadId, usize) {
        handle.spawn(async { (thread::current().id(), number()) }).await.unwrap()
    }

    #[tokio::test]
    async fn connections_are_spread_and_seats_are_free_again() {
        let crew = Crew::start("ours", 2).unwrap();
        let (first, kept) = crew.seat().unwrap();
        let (second, left) = crew.seat().unwrap();
        let (first, second) = (thread(first).await, thread(second).await);
        assert_ne!(first.0, second.0);
        assert_eq!((first.1, second.1), (0, 1));
        drop(left);
        let (again, _stays) = crew.seat().unwrap();
        assert_eq!(thread(again).await, second, "the other one is taken");
        drop(kept);
        let (again, _stays) = crew.seat().unwrap();
        assert_eq!(thread(again).await, first);
    }

    #[tokio::test]
    async fn what_runs_on_them_ends_with_the_last_copy() {
        let crew = Crew::start("ours", 1).unwrap();
        let copy = crew.clone();
        let (alive, mut ended) = mpsc::channel::<()>(1);
        copy.seat().unwrap().0.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        drop(crew);
        assert_ne!(thread(copy.seat().unwrap().0).await.0, thread::current().id());
        drop(copy);
        assert_eq!(ended.recv().await, None, "whoever runs there is dropped");
    }

    #[test]
    fn there_is_always_somebody() {
        assert!(Crew::start("ours", 0).unwrap().seat().is_some());
    }
}
