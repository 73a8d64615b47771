//! Connections to a server that nobody uses, kept for the next request.
//!
//! Where connections of clients stay on a thread, each thread has a shelf of its own. A connection's events are heard by
//! the thread that opened it, and whoever used it on another would have to be woken from there at every piece of an
//! answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::link::Http1;
use crate::listen::thread_number;

/// The most connections on all shelves of a server.
const MAX_KEPT: usize = 1_024;

/// The shelves.
pub(super) struct Shelves(Box<[Mutex<Shelf>]>);

/// Since when each is kept; the last one in is the first one out.
type Shelf = Vec<(Instant, Box<Http1>)>;

impl Shelves {
    /// One for each of so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads.clamp(1, MAX_KEPT)).map(|_| Mutex::default()).collect())
    }

    /// Keeps a connection, unless the shelf is full.
    pub(super) fn keep(&self, link: Box<Http1>) {
        let most = MAX_KEPT / self.0.len();
        let mut shelf = self.own().lock();
        if shelf.len() < most {
            shelf.push((Instant::now(), link));
        }
    }

    /// The connection that was kept last, if that is not too long ago.
    pub(super) fn take(&self, longest: Duration) -> Option<Box<Http1>> {
        let (since, link) = self.own().lock().pop()?;
        // Those below it are older still, and closed by whoever tidies up.
        (since.elapsed() < longest).then_some(link)
    }

    /// Closes what has been kept for too long.
    pub(super) fn tidy(&self, longest: Duration) {
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

    fn own(&self) -> &Mutex<Shelf> {
        &self.0[thread_number() % self.0.len()]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::gateway::link::tests::link;
    use crate::listen::Crew;

    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_thread_finds_what_it_has_kept_itself() {
        let shelves = Arc::new(Shelves::new(2));
        shelves.keep(link().await);
        // The first thread of a crew is as good as this one; the second has a shelf of its own.
        let crew = Crew::start("ours", 2).unwrap();
        let seats = [crew.seat().unwrap(), crew.seat().unwrap()];
        for (thread, finds) in [(1, false), (0, true), (0, false)] {
            let shelves = Arc::clone(&shelves);
            let taken = seats[thread].0.spawn(async move { shelves.take(LONG).is_some() });
            assert_eq!(taken.await.unwrap(), finds, "thread {thread}");
        }
    }

    #[tokio::test]
    async fn no_more_are_kept_than_there_is_room_for() {
        let shelves = Shelves::new(MAX_KEPT);
        shelves.keep(link().await);
        shelves.keep(link().await);
        assert!(shelves.take(LONG).is_some());
        assert!(shelves.take(LONG).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_for_too_long_is_closed() {
        let shelves = Shelves::new(1);
        shelves.keep(link().await);
        tokio::time::advance(LONG).await;
        shelves.keep(link().await);
        tokio::time::advance(LONG / 2).await;
        shelves.tidy(LONG);
        assert_eq!(shelves.own().lock().len(), 1, "the older one is gone");
        assert!(shelves.take(LONG / 4).is_none(), "too old for who asks");
    }
}
