//! Changing rules and following changes: every edit is checked as a whole before it is written, and what
//! is written comes into force here and on every other node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tidegate_core::key::Secret;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_rules::RuleSet;
use tokio::sync::Mutex;

use crate::book::Book;
use crate::compile::{Compiles, Flaw, compile, next_expiry};
use crate::copy::Copy;
use crate::edit::{Edit, Entry};
use crate::metrics::{Bounds, Durations, Exports, Exposition, Kind, Unit};
use crate::repository::{Refused, Repository};
use crate::violation::Identities;

/// How often an edit is made anew when others were faster.
const ATTEMPTS: usize = 16;

/// The longest that nobody looks whether an override has run out.
const LONGEST_LOOK: Duration = Duration::from_secs(3_600);

/// When it is tried again to take one out that could not be.
const EXPIRE_AGAIN: Micros = Micros::from_secs(1);

/// Upper bounds of how long a version takes to this node, in microseconds.
const PROPAGATION: Bounds = [
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Puts rules into force on this node, and hears what became of attempts.
pub trait Desk: Send + Sync {
    /// Puts rules into force.
    ///
    /// # Errors
    /// Why they do not come into force; those before stay.
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>>;

    /// A version came into force, or did not, or nobody knows whether there is one.
    fn hear(&self, news: &News<'_>);
}

/// What happened.
#[derive(Debug)]
pub enum News<'a> {
    /// Rules of a version came into force.
    InForce {
        /// The version.
        version: u64,
    },
    /// A version cannot come into force; the one before stays.
    Faulty {
        /// The version.
        version: u64,
        /// Why not.
        why: &'a str,
    },
    /// The repository does not answer; the rules in force stay.
    Lost {
        /// Why not.
        why: &'a Refused,
    },
    /// The repository answers again.
    Back,
    /// The copy for the next start could not be written.
    CopyFailed {
        /// Why not.
        why: &'a std::io::Error,
    },
}

/// Who wants something changed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
}

/// Why an edit was not made. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such entry.
    Missing(String),
    /// There is such an entry already.
    Exists(String),
    /// The entry is not what the editor saw any more.
    Outdated {
        /// The version that last changed it; nothing when it is gone.
        version: Option<u64>,
    },
    /// The editor does not say what they saw of an entry that is there.
    Unseen,
    /// The rules would not be valid.
    Invalid(Vec<Flaw>),
    /// The repository did not do it.
    Refused(Refused),
}

/// What an edit led to.
#[derive(Clone, Debug)]
pub struct Done {
    /// The version that holds from now on.
    pub version: u64,
    /// What is in force on this node, at least of that version.
    pub book: Arc<Book>,
}

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

/// What is known of attempts to follow.
#[derive(Debug, Default)]
struct Following {
    lost: bool,
    /// The latest version that could not come into force.
    faulty: Option<u64>,
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

    /// The rules that a book would make. Thousands of rules take a while; workers have requests to answer
    /// meanwhile.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn compile(&self, book: Arc<Book>) -> Result<RuleSet, Vec<Flaw>> {
        self.compile_at(book, self.now()).await
    }

    async fn compile_at(&self, book: Arc<Book>, now: Timestamp) -> Result<RuleSet, Vec<Flaw>> {
        let compiler = Arc::clone(&self.compiler);
        let compiled = tokio::task::spawn_blocking(move || compile(&book, &*compiler, now)).await;
        compiled.unwrap_or_else(|error| Err(vec![Flaw::of_document(&error.to_string())]))
    }

    /// The rules of a document that is not in any book yet.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn compile_document(
        &self,
        document: &str,
    ) -> Result<RuleSet, tidegate_rules::problem::Problems> {
        self.compiler.compile(document)
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

    /// Brings this node up to date.
    pub async fn follow(&self) {
        let mut following = self.following.lock().await;
        let latest = match self.latest().await {
            Ok(latest) => latest,
            Err(why) => {
                if !std::mem::replace(&mut following.lost, true) {
                    self.desk.hear(&News::Lost { why: &why });
                }
                return;
            }
        };
        if std::mem::take(&mut following.lost) {
            self.desk.hear(&News::Back);
        }
        let version = latest.version();
        if version == self.book.load().version() || following.faulty == Some(version) {
            return;
        }
        match self.put_into_force(&latest).await {
            Ok(()) => {
                following.faulty = None;
                self.time_propagation(version).await;
            }
            Err(why) => {
                following.faulty = Some(version);
                self.desk.hear(&News::Faulty { version, why: &why });
            }
        }
    }

    /// Notes how long a version that is in force took from when it was written, by two wall clocks.
    async fn time_propagation(&self, version: u64) {
        let in_force = self.now();
        // Where that cannot be asked, it is not known.
        let Ok(history) = self.repository.history(version + 1, 1).await else { return };
        if let Some(signed) = history.first().filter(|signed| signed.version == version) {
            self.propagation.add(in_force.since(signed.at).get());
        }
    }

    /// Follows whatever changes, says so to other nodes, and lets overrides run out, until it is dropped.
    pub async fn keep(&self) {
        let mut said = None;
        loop {
            self.check_in(&mut said).await;
            let left = Duration::from(self.expiry().since(self.now()));
            tokio::select! {
                _ = self.repository.stirred() => self.follow().await,
                () = tokio::time::sleep(left.min(LONGEST_LOOK)) => self.expire().await,
            }
        }
    }

    fn expiry(&self) -> Timestamp {
        Timestamp::from_micros(self.expiry.load(Ordering::Relaxed))
    }

    /// Compiles the book in force again if an override has run out since.
    async fn expire(&self) {
        let _one = self.following.lock().await;
        let now = self.now();
        // It was valid with more overrides, so only the store can be in the way.
        if self.expiry() <= now && self.put_into_force(&self.book()).await.is_err() {
            self.expiry.store(now.plus(EXPIRE_AGAIN).as_micros(), Ordering::Relaxed);
        }
    }

    async fn put_into_force(&self, book: &Arc<Book>) -> Result<(), String> {
        let now = self.now();
        let rules = self.compile_at(Arc::clone(book), now).await.map_err(|flaws| {
            flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        self.desk.install(rules).await?;
        self.book.store(Arc::clone(book));
        self.expiry.store(expiry(book, now), Ordering::Relaxed);
        self.desk.hear(&News::InForce { version: book.version() });
        if let Some(copy) = &self.copy
            && let Err(why) = copy.write(book).await
        {
            self.desk.hear(&News::CopyFailed { why: &why });
        }
        Ok(())
    }
}

impl Exports for Office {
    fn export(&self, to: &mut Exposition) {
        let book = self.book();
        let help = "The version of the rules in force; 0 while they are in a file.";
        to.family("tidegate_rules_version", Kind::Gauge, help);
        to.sample("", &[], book.version());
        let help = "What the rules in force are made of.";
        to.family("tidegate_rules_entries", Kind::Gauge, help);
        for kind in crate::book::Kind::ALL {
            to.sample("", &[("kind", kind.name())], book.all(kind, None).count() as u64);
        }
        let help =
            "From when a version is written, by its node's clock, until it is in force here.";
        to.family("tidegate_rules_propagation_seconds", Kind::Histogram, help);
        to.distribution(&[], &self.propagation.told(), Unit::Micros);
    }
}

/// When the next override runs out that has not at an instant; the end of time when none does.
fn expiry(book: &Book, now: Timestamp) -> u64 {
    next_expiry(book, now).map_or(u64::MAX, Timestamp::as_micros)
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "there is no {what}"),
            Self::Exists(what) => write!(f, "there is already a {what}"),
            Self::Outdated { version: Some(version) } => {
                write!(f, "somebody changed this meanwhile, in version {version}; look at it again")
            }
            Self::Unseen => f.write_str(
                "this is there already; look at it and send its ETag with If-Match, so that nobody's \
                 change is lost",
            ),
            Self::Outdated { version: None } => f.write_str("somebody removed this meanwhile"),
            Self::Invalid(flaws) => {
                let told: Vec<String> = flaws.iter().map(ToString::to_string).collect();
                f.write_str(&told.join("\n"))
            }
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}
