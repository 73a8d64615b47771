//! A repository that is in the way of an edit: once, when what changed between two versions is asked for, an edit of
//! somebody else comes first; it can refuse every edit, and write violations without saying so. Everything else is that of the repository behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tidegate_control::{
    Batch, Book, Change, Edit, Node, Page, Refused, Repository, Signal, Signed, ViolationQuery,
    open,
};
use tidegate_core::time::Timestamp;

type Answer<'a, T> = BoxFuture<'a, Result<T, Refused>>;

#[derive(Debug)]
pub(crate) struct Meddler {
    behind: Arc<dyn Repository>,
    /// What comes first next time.
    pub(crate) next: Mutex<Option<Edit>>,
    /// Why no edit is made.
    pub(crate) refuses: Mutex<Option<Refused>>,
    /// Whether the next violations are written and that is not heard.
    pub(crate) is_deaf: AtomicBool,
}

impl Meddler {
    /// Before a file of SQLite.
    pub(crate) async fn before(file: &Path) -> Arc<Self> {
        let behind = open(&format!("sqlite:{}", file.display())).await.expect("a repository");
        Arc::new(Self {
            behind,
            next: Mutex::default(),
            refuses: Mutex::default(),
            is_deaf: AtomicBool::default(),
        })
    }
}

impl Repository for Meddler {
    fn changes(&self, since: u64, until: u64) -> Answer<'_, Vec<Change>> {
        let meddling = self.next.lock().take();
        async move {
            if let Some(edit) = meddling {
                self.behind.commit(self.behind.head().await?, &edit).await?;
            }
            self.behind.changes(since, until).await
        }
        .boxed()
    }

    fn name(&self) -> &str {
        self.behind.name()
    }

    fn head(&self) -> Answer<'_, u64> {
        self.behind.head()
    }

    fn book(&self) -> Answer<'_, Book> {
        self.behind.book()
    }

    fn history(&self, before: u64, most: u32) -> Answer<'_, Vec<Signed>> {
        self.behind.history(before, most)
    }

    fn commit<'a>(&'a self, on: u64, edit: &'a Edit) -> Answer<'a, u64> {
        match self.refuses.lock().clone() {
            Some(why) => async { Err(why) }.boxed(),
            None => self.behind.commit(on, edit),
        }
    }

    fn stirred(&self) -> BoxFuture<'_, Signal> {
        self.behind.stirred()
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()> {
        let is_deaf = self.is_deaf.swap(false, Ordering::SeqCst);
        async move {
            self.behind.record(batch).await?;
            let unheard = || Refused::Gone("nobody heard that it was written".to_owned());
            if is_deaf { Err(unheard()) } else { Ok(()) }
        }
        .boxed()
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> Answer<'a, Page> {
        self.behind.violations(query)
    }

    fn prune(&self, before: Timestamp, most: u64) -> Answer<'_, u64> {
        self.behind.prune(before, most)
    }

    fn check_in<'a>(&'a self, node: &'a Node, forget: Timestamp) -> Answer<'a, ()> {
        self.behind.check_in(node, forget)
    }

    fn leave<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        self.behind.leave(name)
    }

    fn nodes(&self) -> Answer<'_, Vec<Node>> {
        self.behind.nodes()
    }
}
