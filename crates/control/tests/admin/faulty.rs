//! A repository that hangs or fails when it is told to, and remembers what it was given.

use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tidegate_control::{
    Batch, Book, Change, Edit, Node, Page, Refused, Repository, Signal, Signed, Violation,
    ViolationQuery,
};
use tidegate_core::time::Timestamp;
use tokio::sync::Notify;

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Well,
    Fails,
    Hangs,
}

#[derive(Debug, Default)]
pub(crate) struct Faulty {
    mood: AtomicU8,
    changed: Notify,
    /// The batches that are on record.
    pub(crate) batches: Mutex<Vec<Vec<Violation>>>,
    /// How often somebody wanted one written.
    pub(crate) asked: AtomicU8,
}

impl Faulty {
    pub(crate) fn be(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Everything on record, in order.
    pub(crate) fn written(&self) -> Vec<Violation> {
        self.batches.lock().concat()
    }

    async fn answer(&self) -> Result<(), Refused> {
        loop {
            let changed = self.changed.notified();
            match self.mood.load(Ordering::SeqCst) {
                mood if mood == Mood::Well as u8 => return Ok(()),
                mood if mood == Mood::Fails as u8 => return Err(gone()),
                _ => changed.await,
            }
        }
    }
}

fn gone() -> Refused {
    Refused::Gone("as the test wants it".to_owned())
}

impl Repository for Faulty {
    fn name(&self) -> &str {
        "a faulty one"
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>> {
        async { self.answer().await.map(|()| 0) }.boxed()
    }

    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>> {
        async { self.answer().await.map(|()| Book::default()) }.boxed()
    }

    fn changes(&self, _: u64, _: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>> {
        async { self.answer().await.map(|()| Vec::new()) }.boxed()
    }

    fn history(&self, _: u64, _: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>> {
        async { self.answer().await.map(|()| Vec::new()) }.boxed()
    }

    fn commit<'a>(&'a self, on: u64, _: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>> {
        async move { self.answer().await.map(|()| on) }.boxed()
    }

    fn stirred(&self) -> BoxFuture<'_, Signal> {
        std::future::pending().boxed()
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>> {
        async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.answer().await?;
            self.batches.lock().push(batch.violations.clone());
            Ok(())
        }
        .boxed()
    }

    fn violations<'a>(&'a self, _: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>> {
        async { self.answer().await.map(|()| Page::default()) }.boxed()
    }

    fn prune(&self, _: Timestamp, _: u64) -> BoxFuture<'_, Result<u64, Refused>> {
        async { self.answer().await.map(|()| 0) }.boxed()
    }

    fn check_in<'a>(&'a self, _: &'a Node, _: Timestamp) -> BoxFuture<'a, Result<(), Refused>> {
        self.answer().boxed()
    }

    fn leave<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        self.answer().boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>> {
        async { self.answer().await.map(|()| Vec::new()) }.boxed()
    }
}
