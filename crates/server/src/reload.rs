//! Puts changed rules into force while requests run. Whatever is wrong with the new ones, the last
//! good ones stay, and the log and `/readyz` say so.

mod reading;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_control::{Book, Office};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_rules::RuleSet;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::changes::Changes;
use crate::config::Layer;
use crate::extraction::Extraction;
use crate::failure::Failure;
use crate::office::{Compiler, Origin, TableError};
use crate::source::Source;
use crate::telemetry::Event;
use crate::watch::Watch;
use reading::{FileRead, Seen};

/// Reads rules again when told.
#[derive(Debug)]
pub(crate) struct Reloader<S, L> {
    pub(crate) source: Source,
    pub(crate) secret: Secret,
    pub(crate) limiter: Arc<Limiter<S, L>>,
    pub(crate) status: Arc<Status>,
    /// A hash of the bytes that were looked at last, good or bad.
    pub(crate) seen: Option<u64>,
    /// The file of the key that tokens are checked with, which may change by itself.
    pub(crate) key_file: Option<PathBuf>,
    /// The `server:` section that the process runs on.
    pub(crate) section: Layer,
    pub(crate) office: Arc<Office>,
    pub(crate) extraction: Extraction,
    pub(crate) origin: Origin,
    /// Woken when a version of the database came into force.
    pub(crate) in_force: Arc<Notify>,
}

/// Why rules are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// A person asked, and wants an answer.
    Signal,
    /// The file may have changed.
    File,
    /// The table may have changed.
    Table,
}

/// Why rules that are valid in themselves, or could not be read, do not come into force.
#[derive(Debug)]
enum Refusal {
    Faulty(Failure),
    Table(TableError),
    Emptied { rules: usize, empty: Empty },
}

/// What may lose all its rules, and how to do that on purpose.
#[derive(Clone, Copy, Debug)]
struct Empty {
    what: &'static str,
    how: &'static str,
}

impl Refusal {
    /// The reason for callers without a token: only where the mistakes are.
    fn in_public(&self) -> String {
        match self {
            Self::Faulty(failure) => failure.in_public(),
            Self::Table(error) => error.in_public(),
            Self::Emptied { empty: Empty { what, .. }, .. } => {
                format!("the {what} has no rules any more")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faulty(failure) => failure.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::Emptied { rules, empty: Empty { what, how } } => write!(
                f,
                "the {what} has no rules any more, which would lift all {rules} limits; {how}"
            ),
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Reloader<S, L> {
    /// Reloads on SIGHUP and when the file or the table changes, until it is dropped.
    pub(crate) async fn run(mut self, mut hang_up: Signal) {
        let (file_changed, _watching) = watch(self.source.path());
        self.check_seed().await;
        // What changed between the first reading and the first watch.
        self.reload(Trigger::File).await;
        if matches!(self.origin, Origin::Table(..)) {
            self.reload(Trigger::Table).await;
        }
        let in_force = Arc::clone(&self.in_force);
        loop {
            let trigger = tokio::select! {
                Some(()) = hang_up.recv() => Trigger::Signal,
                () = file_changed.notified() => Trigger::File,
                () = table_changed(&self.origin) => Trigger::Table,
                () = in_force.notified() => {
                    self.check_seed().await;
                    continue;
                }
            };
            self.reload(trigger).await;
        }
    }

    async fn check_seed(&mut self) {
        if let Origin::Database(seed) = &mut self.origin {
            seed.check(&self.office, &self.status).await;
        }
    }

    async fn reload(&mut self, trigger: Trigger) {
        let done = match self.origin {
            Origin::Table(..) => self.reload_table(trigger).await,
            Origin::File(_) => self.reload_file(trigger).await,
            Origin::Database(_) => {
                self.reread_seed(trigger).await;
                Ok(())
            }
        };
        if let Err(refusal) = done {
            self.status.reload_failed(refusal.in_public());
            let name = self.office.repository().name();
            Event::ReloadRefused { source: name, reason: &refusal }.tell();
        }
    }

    /// Reads the file; nothing where it is as it was, unless a person asked.
    async fn read_file(&mut self, trigger: Trigger) -> Option<Result<FileRead, Failure>> {
        let (source, secret) = (self.source.clone(), self.secret);
        let seen = Seen { content: self.seen, key_file: self.key_file.clone() };
        let always = trigger == Trigger::Signal;
        // Thousands of rules take a while to compile; workers have requests to answer meanwhile.
        let look = move || reading::read(&source, secret, &seen, always);
        let (seen, read) = tokio::task::spawn_blocking(look).await.ok()?;
        self.seen = seen;
        if let Some(Ok(read)) = &read {
            (self.key_file, self.seen) = (read.loaded.key_file.clone(), Some(read.loaded.content));
        }
        read
    }

    async fn reload_file(&mut self, trigger: Trigger) -> Result<(), Refusal> {
        let Some(read) = self.read_file(trigger).await else { return Ok(()) };
        let read = read.map_err(Refusal::Faulty)?;
        let book = read.book();
        let empty = Empty { what: "document", how: "restart to apply an empty rule set" };
        self.install(read.rules, book, empty).await?;
        self.note_section(&read.loaded.section);
        Ok(())
    }

    /// The rules of the database stay; the file is only compared.
    async fn reread_seed(&mut self, trigger: Trigger) {
        let read = self.read_file(trigger).await;
        let Some(read) = read else { return };
        if let Origin::Database(seed) = &mut self.origin {
            seed.replace(read.as_ref().map(|read| read.entries.clone()));
        }
        if let Ok(read) = &read {
            self.note_section(&read.loaded.section);
        }
        self.check_seed().await;
        self.office.follow().await;
    }

    async fn reload_table(&mut self, trigger: Trigger) -> Result<(), Refusal> {
        let read = match trigger {
            Trigger::Table => None,
            Trigger::File | Trigger::Signal => self.read_file(trigger).await,
        };
        let changed = read.is_some() || trigger == Trigger::Signal;
        let beside = match read {
            Some(read) => {
                let read = read.map_err(Refusal::Faulty)?;
                self.note_section(&read.loaded.section);
                read.beside_table(&self.source).map_err(Refusal::Faulty)?
            }
            None => reading::settings_of(&self.office.book()),
        };
        let Origin::Table(_, followed) = &mut self.origin else { return Ok(()) };
        let rows = match followed.look(changed).await {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.status.rules_unknown(why.in_public());
                return Ok(());
            }
        };
        let compiler = Compiler { source: self.source.clone(), secret: self.secret };
        let compiled = tokio::task::block_in_place(|| followed.compile(rows, &beside, &compiler));
        let (book, rules) = compiled.map_err(Refusal::Table)?;
        let how = "set is_active to false in all rows instead, or restart";
        self.install(rules, book.clone(), Empty { what: "table", how }).await?;
        if let Origin::Table(_, followed) = &self.origin {
            followed.keep(&book).await;
        }
        Ok(())
    }

    /// Puts rules of a file or a table into force.
    async fn install(&self, rules: RuleSet, book: Book, empty: Empty) -> Result<(), Refusal> {
        let (Origin::File(read_only) | Origin::Table(read_only, _)) = &self.origin else {
            return Ok(());
        };
        let (name, before) = (self.office.repository().name(), self.limiter.rules());
        if rules.rules().is_empty() && !before.rules().is_empty() {
            return Err(Refusal::Emptied { rules: before.rules().len(), empty });
        }
        let (version, changes) = (rules.version(), Changes::between(&before, &rules));
        let installed = self.limiter.install(rules).await;
        installed.map_err(|error| Refusal::Faulty(Failure::CouldNot(error.to_string())))?;
        read_only.replace(book.clone());
        self.office.adopt(book);
        self.status.rules_in_force(version);
        self.extraction.report(&self.limiter.rules(), &self.status);
        if version == before.version() {
            Event::ReloadUnchanged { source: name }.tell();
        } else {
            Event::Reloaded { source: name, version, changes: &changes }.tell();
        }
        Ok(())
    }

    fn note_section(&self, section: &Layer) {
        if *section != self.section {
            Event::SectionChanged { source: &self.source.name() }.tell();
        }
    }
}

/// Watches a file in a task, which ends with the set: a wait for the end of a change must not be
/// given up when something else comes first.
fn watch(path: Option<&Path>) -> (Arc<Notify>, JoinSet<()>) {
    let (changed, mut tasks) = (Arc::new(Notify::new()), JoinSet::new());
    if let Some(path) = path {
        let (mut watch, changed) = (Watch::new(path), Arc::clone(&changed));
        tasks.spawn(async move {
            loop {
                watch.stirred().await;
                changed.notify_one();
            }
        });
    }
    (changed, tasks)
}

async fn table_changed(origin: &Origin) {
    match origin {
        Origin::Table(_, followed) => followed.wait_for_change().await,
        Origin::File(_) | Origin::Database(_) => std::future::pending().await,
    }
}
