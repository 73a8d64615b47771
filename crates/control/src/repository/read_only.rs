//! Rules that are kept elsewhere: in a file, or in a table that others edit. They have no versions
//! and take no changes; the latest violations are kept in memory.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};
use parking_lot::Mutex;
use tidegate_core::time::Timestamp;

use super::remembered::Remembered;
use super::{Refused, Repository, RuleSource, Signal};
use crate::book::Book;
use crate::edit::{Change, Edit, Signed};
use crate::node::Node;
use crate::violation::{Batch, Page, ViolationQuery};

/// Rules that are kept elsewhere, as a book of version 0.
pub struct ReadOnlyRules {
    source: RuleSource,
    /// What the file or table is called.
    name: String,
    book: Mutex<Arc<Book>>,
    remembered: Mutex<Remembered>,
}

impl ReadOnlyRules {
    /// The rules of a file or table of that name.
    #[must_use]
    pub fn new(source: RuleSource, name: &str, book: Book) -> Self {
        let book = Mutex::new(Arc::new(book));
        Self { source, name: name.to_owned(), book, remembered: Mutex::default() }
    }

    /// The file or table says something else now.
    pub fn replace(&self, book: Book) {
        *self.book.lock() = Arc::new(book);
    }
}

impl Repository for ReadOnlyRules {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> RuleSource {
        self.source
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>> {
        ready(Ok(0)).boxed()
    }

    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>> {
        ready(Ok(Book::clone(&self.book.lock()))).boxed()
    }

    fn changes(&self, _: u64, _: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn history(&self, _: u64, _: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn commit<'a>(&'a self, _: u64, _: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>> {
        let refused = Refused::ReadOnly { source: self.source, name: self.name.clone() };
        ready(Err(refused)).boxed()
    }

    // The task that reads the file or table puts its rules into force.
    fn stirred(&self) -> BoxFuture<'_, Signal> {
        pending().boxed()
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>> {
        self.remembered.lock().add(batch);
        ready(Ok(())).boxed()
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>> {
        ready(Ok(self.remembered.lock().page(query))).boxed()
    }

    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Refused>> {
        ready(Ok(self.remembered.lock().prune(before, most))).boxed()
    }

    // Nodes that share a file or table do not know of each other.
    fn check_in<'a>(&'a self, _: &'a Node, _: Timestamp) -> BoxFuture<'a, Result<(), Refused>> {
        ready(Ok(())).boxed()
    }

    fn leave<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        ready(Ok(())).boxed()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>> {
        ready(Ok(Vec::new())).boxed()
    }
}

impl fmt::Debug for ReadOnlyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyRules").field("name", &self.name).finish_non_exhaustive()
    }
}
