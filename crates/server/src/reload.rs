//! Puts changed rules into force while requests run. Whatever is wrong with the new ones, the last
//! good ones stay, and the log and `/readyz` say so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_control::{Book, Draft, Files, Office};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_rules::RuleSet;
use tokio::signal::unix::Signal;

use crate::changes::Changes;
use crate::config::Layer;
use crate::extraction::Extraction;
use crate::failure::Failure;
use crate::office;
use crate::source::{self, Source};
use crate::telemetry::Event;
use crate::watch::Watch;

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
    /// Where the file's rules are until they are changed; nowhere when they are in a database.
    pub(crate) draft: Option<Arc<Draft>>,
    pub(crate) extraction: Extraction,
}

/// Why rules are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// Somebody asked, and wants an answer.
    Signal,
    /// The file may have changed.
    File,
}

/// Why rules that are valid in themselves, or could not be read, do not come into force.
#[derive(Debug)]
enum Refusal {
    Faulty(Failure),
    Emptied { rules: usize },
}

impl Refusal {
    /// The reason for callers without a token: only where the mistakes are.
    fn in_public(&self) -> String {
        match self {
            Self::Faulty(failure) => failure.in_public(),
            Self::Emptied { .. } => "the document has no rules any more".to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faulty(failure) => failure.fmt(f),
            Self::Emptied { rules } => write!(
                f,
                "the document has no rules any more, which would lift all {rules} limits; restart \
                 to apply an empty rule set"
            ),
        }
    }
}

/// New rules with what else the document says.
struct Fresh {
    rules: RuleSet,
    book: Book,
    section: Layer,
    key_file: Option<PathBuf>,
    content: u64,
}

impl<S: Store + 'static, L: Store + 'static> Reloader<S, L> {
    /// Reloads on SIGHUP and when the file changes, until it is dropped.
    pub(crate) async fn run(mut self, mut hang_up: Signal) {
        let mut watch = self.source.path().map(Watch::new);
        // What changed between the first reading and the first watch.
        self.reload(Trigger::File).await;
        loop {
            let trigger = tokio::select! {
                Some(()) = hang_up.recv() => Trigger::Signal,
                () = stirred(watch.as_mut()) => Trigger::File,
            };
            self.reload(trigger).await;
        }
    }

    async fn reload(&mut self, trigger: Trigger) {
        let name = self.source.name();
        let (source, secret, seen) = (self.source.clone(), self.secret, self.seen);
        // Thousands of rules take a while to compile; workers have requests to answer meanwhile.
        let key_file = self.key_file.clone();
        let look = move || {
            let seen = Seen { content: seen, key_file: key_file.as_deref() };
            read(&source, secret, seen, trigger)
        };
        let Ok((seen, fresh)) = tokio::task::spawn_blocking(look).await else {
            return;
        };
        let anew = self.seen != seen;
        self.seen = seen;
        let Some(fresh) = fresh else {
            return;
        };
        match self.install(fresh, anew).await {
            Ok(()) => {}
            Err(refusal) => {
                self.status.reload_failed(refusal.in_public());
                Event::ReloadRefused { source: &name, reason: &refusal }.tell();
            }
        }
    }

    /// Puts rules of the file into force, unless those of a database are; that they are `anew` is told then.
    async fn install(&mut self, fresh: Result<Fresh, Failure>, anew: bool) -> Result<(), Refusal> {
        let Fresh { rules, book, section, key_file, content } = fresh.map_err(Refusal::Faulty)?;
        (self.key_file, self.seen) = (key_file, Some(content));
        let (name, before) = (self.source.name(), self.limiter.rules());
        let Some(draft) = self.draft.as_ref().filter(|draft| !draft.is_in_database()) else {
            if anew {
                let database = self.office.repository().name();
                Event::FileIgnored { source: &name, database }.tell();
            }
            self.office.follow().await;
            return Ok(());
        };
        if rules.rules().is_empty() && !before.rules().is_empty() {
            return Err(Refusal::Emptied { rules: before.rules().len() });
        }
        let (version, changes) = (rules.version(), Changes::between(&before, &rules));
        let installed = self.limiter.install(rules).await;
        installed.map_err(|error| Refusal::Faulty(Failure::CouldNot(error.to_string())))?;
        draft.replace(book.clone());
        self.office.adopt(book);
        self.status.rules_in_force(version);
        self.extraction.report(&self.limiter.rules(), &self.status);
        if version == before.version() {
            Event::ReloadUnchanged { source: &name }.tell();
        } else {
            Event::Reloaded { source: &name, version, changes: &changes }.tell();
        }
        if section != self.section {
            Event::SectionChanged { source: &name }.tell();
        }
        Ok(())
    }
}

async fn stirred(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => watch.stirred().await,
        None => std::future::pending().await,
    }
}

/// What was looked at last.
#[derive(Clone, Copy)]
struct Seen<'a> {
    content: Option<u64>,
    key_file: Option<&'a Path>,
}

/// Reads and compiles. Nothing comes of bytes that were looked at before, unless somebody asked.
fn read(
    source: &Source,
    secret: Secret,
    seen: Seen<'_>,
    trigger: Trigger,
) -> (Option<u64>, Option<Result<Fresh, Failure>>) {
    let bytes = match source.bytes() {
        Ok(bytes) => bytes,
        // A file that is gone is told once, not at every look.
        Err(_) if seen.content.is_none() && trigger == Trigger::File => return (None, None),
        Err(failure) => return (None, Some(Err(failure))),
    };
    let content = Some(source::content(&bytes, seen.key_file));
    if content == seen.content && trigger == Trigger::File {
        return (content, None);
    }
    let fresh = source.load_from(&bytes, Files::All).and_then(|loaded| {
        let rules = loaded.compile(secret)?;
        let book = office::file_book(&loaded, &rules, secret)?;
        let (key_file, content) = (loaded.key_file.clone(), loaded.content);
        Ok(Fresh { rules, book, section: loaded.section, key_file, content })
    });
    (content, Some(fresh))
}
