//! Changing rules: every edit is checked as a whole before it is written, and what is written comes into force here
//! and, because each of them follows (`follow`), on every other node.

mod export;
mod fault;
mod follow;
mod news;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use tidegate_core::key::Secret;
use tidegate_core::time::Timestamp;
use tidegate_rules::RuleSet;
use tidegate_rules::problem::Problems;
use tokio::sync::Mutex;

use crate::book::Book;
use crate::compile::{Compiles, Files, Flaw, compile};
use crate::copy::Copy;
use crate::edit::{Edit, Entry};
use crate::metrics::Durations;
use crate::repository::{Refused, Repository};
use crate::violation::Identities;
use export::PROPAGATION;
use follow::{Following, expiry};

pub use fault::{By, Done, Fault};
pub use news::{Desk, News};

/// How often an edit is made anew when others were faster.
const ATTEMPTS: usize = 16;

/// Where rules are changed.
pub struct Office {
    repository: Arc<dyn Repository>,
    compiler: Arc<dyn Compiles>,
    desk: Arc<dyn Desk>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    secret: Secret,
    identities: Identities,
    node: String,
    copy: Option<Copy>,
    /// What is in force.
    book: ArcSwap<Book>,
    /// When the next of its overrides runs out that was in force when it was compiled. Kept, because a book may
    /// have very many of them; and of that time, because one may run out while somebody looks elsewhere.
    expiry: AtomicU64,
    /// Only one at a time brings this node up to date.
    following: Mutex<Following>,
    /// From when a version is written until it is in force here.
    propagation: Durations,
}

/// What an office is made of.
pub struct Staff {
    /// Where books are kept.
    pub repository: Arc<dyn Repository>,
    /// What compiles them.
    pub compiler: Arc<dyn Compiles>,
    /// What puts them into force.
    pub desk: Arc<dyn Desk>,
    /// The wall clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// What hashes are made with.
    pub secret: Secret,
    /// How users and addresses of violations are kept.
    pub identities: Identities,
    /// What this node is called; no other that keeps its rules there has this name.
    pub node: String,
    /// Where a copy for the next start is kept.
    pub copy: Option<Copy>,
}

impl Office {
    /// An office whose node has a book in force.
    #[must_use]
    pub fn new(staff: Staff, book: Book) -> Self {
        let Staff { repository, compiler, desk, clock, secret, identities, node, copy } = staff;
        // Of those that have run out already, some may have since the rules were compiled.
        let expiry = AtomicU64::new(expiry(&book, Timestamp::from_micros(0)));
        let (book, following) = (ArcSwap::from_pointee(book), Mutex::default());
        Self {
            repository,
            compiler,
            desk,
            clock,
            secret,
            identities,
            node,
            copy,
            book,
            expiry,
            following,
            propagation: Durations::new(&PROPAGATION),
        }
    }

    /// Where books are kept.
    #[must_use]
    pub fn repository(&self) -> &dyn Repository {
        &*self.repository
    }

    /// Refuses where rules are changed elsewhere.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`], with what to do instead.
    pub fn check_editable(&self) -> Result<(), Refused> {
        let source = self.repository.source();
        match source.is_editable() {
            true => Ok(()),
            false => Err(Refused::ReadOnly { source, name: self.repository.name().to_owned() }),
        }
    }

    /// What is in force on this node.
    #[must_use]
    pub fn book(&self) -> Arc<Book> {
        self.book.load_full()
    }

    /// The file says something else, and is in force: it has no versions.
    pub fn adopt(&self, book: Book) {
        self.book.store(Arc::new(book));
    }

    /// What hashes are made with.
    #[must_use]
    pub const fn secret(&self) -> Secret {
        self.secret
    }

    /// How users and addresses of violations are kept.
    #[must_use]
    pub const fn identities(&self) -> Identities {
        self.identities
    }

    /// What this node is called.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The rules of a book that a request asks for. Thousands of rules take a while to compile, so that
    /// is done off the runtime.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn compile(&self, book: Arc<Book>) -> Result<RuleSet, Vec<Flaw>> {
        self.compile_at(book, Files::Configured, self.now()).await
    }

    async fn compile_at(
        &self,
        book: Arc<Book>,
        files: Files,
        now: Timestamp,
    ) -> Result<RuleSet, Vec<Flaw>> {
        let compiler = Arc::clone(&self.compiler);
        let compiled =
            tokio::task::spawn_blocking(move || compile(&book, &*compiler, files, now)).await;
        compiled.unwrap_or_else(|error| Err(vec![Flaw::of_document(&error.to_string())]))
    }

    /// The rules of a document that a request brings, and what `read` makes of both.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn compile_document<T: Send + 'static>(
        &self,
        document: String,
        read: impl FnOnce(&str, &RuleSet) -> Result<T, Problems> + Send + 'static,
    ) -> Result<T, Problems> {
        let compiler = Arc::clone(&self.compiler);
        let compiled = tokio::task::spawn_blocking(move || {
            let rules = compiler.compile(&document, Files::Configured)?;
            read(&document, &rules)
        });
        // A task that is not cancelled ends otherwise only by a panic, which its thread has reported.
        compiled
            .await
            .unwrap_or_else(|_| Err(Problems { file: String::new(), list: Vec::new(), omitted: 1 }))
    }

    /// The rules of a document without what is in the files that it names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn compile_rules(&self, document: &str) -> Result<RuleSet, Problems> {
        self.compiler.compile(document, Files::None)
    }

    /// Changes what `make` says, given the latest book, as one new version, and puts it into force here.
    /// `make` is asked again when somebody else was faster.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn edit(
        &self,
        by: &By,
        make: impl Fn(&Book) -> Result<Vec<Entry>, Fault>,
    ) -> Result<Done, Fault> {
        let mut refused = Refused::Outdated { head: 0 };
        for _ in 0..ATTEMPTS {
            let book = self.latest().await.map_err(Fault::Refused)?;
            let entries = make(&book)?;
            self.compile(Arc::new(book.with(&entries))).await.map_err(Fault::Invalid)?;
            let By { author, reason } = by.clone();
            let edit = Edit { author, reason, at: self.now(), entries };
            match self.repository.commit(book.version(), &edit).await {
                Ok(version) => {
                    // It is on record; if this node cannot follow, it says so and tries again.
                    self.follow().await;
                    return Ok(Done { version, book: self.book() });
                }
                Err(outdated @ Refused::Outdated { .. }) => refused = outdated,
                Err(other) => return Err(Fault::Refused(other)),
            }
        }
        Err(Fault::Refused(refused))
    }

    /// The latest book there is, whether it is in force here or not.
    ///
    /// # Errors
    /// When the repository does not answer.
    pub async fn latest(&self) -> Result<Arc<Book>, Refused> {
        let book = self.book();
        let head = self.repository.head().await?;
        if head == book.version() {
            return Ok(book);
        }
        if head < book.version() {
            // Somebody put an older database in its place.
            return self.repository.book().await.map(Arc::new);
        }
        let changes = self.repository.changes(book.version(), head).await?;
        let mut latest = Book::clone(&book);
        latest.follow(changes);
        Ok(Arc::new(latest))
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("repository", &self.repository).finish_non_exhaustive()
    }
}
