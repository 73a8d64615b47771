//! A database that did not answer at the start: it is asked again whenever somebody needs it, and until then
//! it is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidegate_core::time::Timestamp;
use tokio::sync::OnceCell;

use super::open::name_of;
use super::{Refused, Repository, Signal, open};
use crate::book::Book;
use crate::edit::{Change, Edit, Signed};
use crate::node::Node;
use crate::violation::{Batch, Page, ViolationQuery};

/// How long after an attempt the next one is made.
const PAUSE: Duration = Duration::from_millis(500);

/// A database to be.
pub struct Patient {
    url: String,
    name: String,
    opened: OnceCell<Arc<dyn Repository>>,
}

impl Patient {
    /// A database at an address that [`open()`] understood.
    ///
    /// # Errors
    /// When it did not.
    pub fn new(url: &str) -> Result<Self, Refused> {
        Ok(Self { url: url.to_owned(), name: name_of(url)?, opened: OnceCell::new() })
    }

    async fn open(&self) -> Result<&Arc<dyn Repository>, Refused> {
        self.opened.get_or_try_init(|| open(&self.url)).await
    }
}

impl Repository for Patient {
    fn name(&self) -> &str {
        &self.name
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>> {
        async { self.open().await?.head().await }.boxed()
    }

    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>> {
        async { self.open().await?.book().await }.boxed()
    }

    fn changes(&self, since: u64, until: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>> {
        async move { self.open().await?.changes(since, until).await }.boxed()
    }

    fn history(&self, before: u64, most: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>> {
        async move { self.open().await?.history(before, most).await }.boxed()
    }

    fn commit<'a>(&'a self, on: u64, edit: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>> {
        async move { self.open().await?.commit(on, edit).await }.boxed()
    }

    fn stirred(&self) -> BoxFuture<'_, Signal> {
        match self.opened.get() {
            Some(opened) => opened.stirred(),
            None => async {
                tokio::time::sleep(PAUSE).await;
                Signal::Look
            }
            .boxed(),
        }
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>> {
        async move { self.open().await?.record(batch).await }.boxed()
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>> {
        async move { self.open().await?.violations(query).await }.boxed()
    }

    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Refused>> {
        async move { self.open().await?.prune(before, most).await }.boxed()
    }

    fn check_in<'a>(
        &'a self,
        node: &'a Node,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), Refused>> {
        async move { self.open().await?.check_in(node, forget).await }.boxed()
    }

    fn leave<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        async move { self.open().await?.leave(name).await }.boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>> {
        async move { self.open().await?.nodes().await }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Refused>> {
        match self.opened.get() {
            Some(opened) => opened.close(),
            None => async { Ok(()) }.boxed(),
        }
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("Patient").field("name", &self.name).finish_non_exhaustive()
    }
}
