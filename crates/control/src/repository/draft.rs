//! Rules of a file, until somebody changes one through the office: from then on they are in an SQLite
//! database, which takes over what the file said.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tidegate_core::time::Timestamp;
use tokio::sync::OnceCell;

use super::remembered::Remembered;
use super::{Refused, Repository, Signal, open};
use crate::book::{Book, Kind};
use crate::edit::{Change, Edit, Entry, Signed};
use crate::node::Node;
use crate::violation::{Batch, Page, ViolationQuery};

/// How long to wait for a version that only this process could make.
const QUIET: Duration = Duration::from_secs(1);

/// Rules of a file, and the database that they go to when they are changed.
pub struct Draft {
    /// What the file is called.
    name: String,
    path: PathBuf,
    file: Mutex<Arc<Book>>,
    database: OnceCell<Arc<dyn Repository>>,
    /// Only one at a time makes the database.
    making: tokio::sync::Mutex<()>,
    remembered: Mutex<Remembered>,
}

impl Draft {
    /// The rules of a file of that name, as a book of version 0, which go to an SQLite database at `path`
    /// when they are changed.
    #[must_use]
    pub fn new(name: &str, path: PathBuf, book: Book) -> Self {
        Self {
            name: name.to_owned(),
            path,
            file: Mutex::new(Arc::new(book)),
            database: OnceCell::new(),
            making: tokio::sync::Mutex::default(),
            remembered: Mutex::default(),
        }
    }

    /// Whether the rules are in the database by now.
    #[must_use]
    pub fn is_in_database(&self) -> bool {
        self.database.initialized()
    }

    /// Where the database is, or will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file says something else now.
    pub fn replace(&self, book: Book) {
        *self.file.lock() = Arc::new(book);
    }

    /// Makes the database of what the file says and of an edit, and puts there what was remembered.
    async fn take_over(&self, edit: &Edit) -> Result<u64, Refused> {
        let version = self.make(edit).await;
        if let Some(database) = self.database.get() {
            // What cannot be written now comes before the next that is.
            let _ = self.hand_over(&**database).await;
        }
        version
    }

    async fn hand_over(&self, database: &dyn Repository) -> Result<(), Refused> {
        let Some(batch) = self.remembered.lock().batch() else { return Ok(()) };
        database.record(&batch).await?;
        self.remembered.lock().forget();
        Ok(())
    }

    async fn make(&self, edit: &Edit) -> Result<u64, Refused> {
        let _one = self.making.lock().await;
        if let Some(database) = self.database.get() {
            let head = database.head().await?;
            return Err(Refused::Outdated { head });
        }
        let database = open(&format!("sqlite:{}", self.path.display())).await?;
        let head = database.head().await?;
        if head > 0 {
            // Somebody else's edit came first.
            let _ = self.database.set(database);
            return Err(Refused::Outdated { head });
        }
        let file = Arc::clone(&self.file.lock());
        let entries = Kind::ALL.into_iter().flat_map(|kind| {
            file.all(kind, None).map(move |(id, kept)| Entry {
                kind,
                id: id.to_owned(),
                value: Some(kept.value.clone()),
            })
        });
        let taken_over = Edit {
            author: "tidegate".to_owned(),
            reason: format!("taken over from {}", self.name),
            at: edit.at,
            entries: entries.collect(),
        };
        let head = database.commit(0, &taken_over).await?;
        let version = database.commit(head, edit).await;
        let _ = self.database.set(database);
        version
    }
}

impl Repository for Draft {
    fn name(&self) -> &str {
        self.database.get().map_or(&self.name, |database| database.name())
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>> {
        match self.database.get() {
            Some(database) => database.head(),
            None => async { Ok(0) }.boxed(),
        }
    }

    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>> {
        match self.database.get() {
            Some(database) => database.book(),
            None => async { Ok(Book::clone(&self.file.lock())) }.boxed(),
        }
    }

    fn changes(&self, since: u64, until: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>> {
        match self.database.get() {
            Some(database) => database.changes(since, until),
            None => async { Ok(Vec::new()) }.boxed(),
        }
    }

    fn history(&self, before: u64, most: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>> {
        match self.database.get() {
            Some(database) => database.history(before, most),
            None => async { Ok(Vec::new()) }.boxed(),
        }
    }

    fn commit<'a>(&'a self, on: u64, edit: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>> {
        match self.database.get() {
            Some(database) => database.commit(on, edit),
            None => self.take_over(edit).boxed(),
        }
    }

    fn stirred(&self) -> BoxFuture<'_, Signal> {
        match self.database.get() {
            Some(database) => database.stirred(),
            None => async {
                tokio::time::sleep(QUIET).await;
                Signal::Look
            }
            .boxed(),
        }
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>> {
        // Under the lock, so that none is remembered once what was remembered is in the database.
        let mut remembered = self.remembered.lock();
        let Some(database) = self.database.get() else {
            remembered.add(batch);
            return async { Ok(()) }.boxed();
        };
        async move {
            self.hand_over(&**database).await?;
            database.record(batch).await
        }
        .boxed()
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>> {
        if let Some(database) = self.database.get() {
            return database.violations(query);
        }
        let page = self.remembered.lock().page(query);
        async { Ok(page) }.boxed()
    }

    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Refused>> {
        if let Some(database) = self.database.get() {
            return database.prune(before, most);
        }
        let gone = self.remembered.lock().prune(before, most);
        async move { Ok(gone) }.boxed()
    }

    // A file is followed by nobody else.
    fn check_in<'a>(
        &'a self,
        node: &'a Node,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), Refused>> {
        match self.database.get() {
            Some(database) => database.check_in(node, forget),
            None => async { Ok(()) }.boxed(),
        }
    }

    fn leave<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        match self.database.get() {
            Some(database) => database.leave(name),
            None => async { Ok(()) }.boxed(),
        }
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>> {
        match self.database.get() {
            Some(database) => database.nodes(),
            None => async { Ok(Vec::new()) }.boxed(),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Refused>> {
        match self.database.get() {
            Some(database) => database.close(),
            None => async { Ok(()) }.boxed(),
        }
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("name", &self.name).finish_non_exhaustive()
    }
}
