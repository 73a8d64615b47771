//! The rule office of this process: where its rules come from at the start, what compiles them, and where
//! they come into force.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidegate_control::{
    Book, By, Compiles, Copy, Desk, Draft, Edit, Entry, Files, Identities, Kept, News, Office,
    Patient, Refused, Repository, Staff, compile,
};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{Clock as _, SystemClock, Timestamp};
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_rules::problem::{Problem, Problems};
use tidegate_rules::{Rule, RuleSet};

use crate::changes::Changes;
use crate::config::Settings;
use crate::extraction::Extraction;
use crate::failure::Failure;
use crate::node;
use crate::source::{Loaded, Source};
use crate::telemetry::Event;

/// What wall clocks of the office are.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Where the rules that a process starts with are from.
pub(crate) struct Start {
    pub(crate) book: Book,
    pub(crate) repository: Arc<dyn Repository>,
    /// Rules that are in a file until they are changed.
    pub(crate) draft: Option<Arc<Draft>>,
    pub(crate) copy: Option<Copy>,
}

/// The wall clock.
pub(crate) fn wall_clock() -> WallClock {
    let clock = SystemClock::new();
    Arc::new(move || clock.now())
}

/// Finds the rules to start with: in the database that is named, in the one beside the file that took over
/// from it, or in the file.
///
/// # Errors
/// When the database does not answer and there is no copy, or the rules are wrong.
pub(crate) async fn start(
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    clock: &WallClock,
) -> Result<(RuleSet, Start), Failure> {
    let beside = source.beside("db");
    let url = match &settings.admin.rules_db {
        Some(url) => url.clone(),
        None if beside.exists() => format!("sqlite:{}", beside.display()),
        None => return from_file(source, loaded, settings, beside),
    };
    let copy = settings.admin.rules_copy.clone().unwrap_or_else(|| source.beside("rules-copy"));
    let copy = Copy::at(copy);
    let compiler = Compiler { source: source.clone(), secret: settings.secret };
    let (repository, book): (Arc<dyn Repository>, Book) = match tidegate_control::open(&url).await {
        Ok(repository) => {
            let book = taken_over(&*repository, source, loaded, settings, clock).await?;
            (repository, book)
        }
        Err(why @ Refused::Gone(_)) => {
            let Some(book) = read_copy(&copy)? else { return Err(could_not(&why)) };
            Event::RulesFromCopy { path: copy.path(), version: book.version(), why: &why }.tell();
            (Arc::new(Patient::new(&url).map_err(|why| could_not(&why))?), book)
        }
        Err(why) => return Err(could_not(&why)),
    };
    let rules = compile(&book, &compiler, Files::All, clock()).map_err(|flaws| {
        let told: Vec<String> = flaws.iter().map(ToString::to_string).collect();
        let (name, version) = (repository.name(), book.version());
        Failure::CouldNot(format!("version {version} of {name} is wrong:\n  {}", told.join("\n  ")))
    })?;
    if let Err(why) = copy.write(&book).await {
        Event::CopyFailed { why: &why }.tell();
    }
    Ok((rules, Start { book, repository, draft: None, copy: Some(copy) }))
}

fn from_file(
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    beside: PathBuf,
) -> Result<(RuleSet, Start), Failure> {
    let rules = loaded.compile(settings.secret)?;
    let book = file_book(loaded, &rules, settings.secret)?;
    let draft = Arc::new(Draft::new(&source.name(), beside, book.clone()));
    let repository = Arc::clone(&draft) as Arc<dyn Repository>;
    Ok((rules, Start { book, repository, draft: Some(draft), copy: None }))
}

/// What a file says, as a book of version 0.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn file_book(loaded: &Loaded, rules: &RuleSet, secret: Secret) -> Result<Book, Failure> {
    let entries = loaded.entries(rules, secret)?;
    let kept = entries
        .into_iter()
        .filter_map(|entry| Some((entry.kind, entry.id, Kept { value: entry.value?, version: 0 })));
    Ok(Book::new(0, kept))
}

/// The book of a database; an empty one takes over the rules of the file first.
async fn taken_over(
    repository: &dyn Repository,
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    clock: &WallClock,
) -> Result<Book, Failure> {
    let book = repository.book().await.map_err(|why| could_not(&why))?;
    if book.version() > 0 || source.is_built_in() {
        return Ok(book);
    }
    let entries: Vec<Entry> = loaded.entries(&loaded.compile(settings.secret)?, settings.secret)?;
    let By { author, reason } =
        By { author: "tidegate".to_owned(), reason: format!("taken over from {}", source.name()) };
    match repository.commit(0, &Edit { author, reason, at: clock(), entries }).await {
        // Another node was faster.
        Ok(_) | Err(Refused::Outdated { .. }) => {}
        Err(why) => return Err(could_not(&why)),
    }
    repository.book().await.map_err(|why| could_not(&why))
}

fn read_copy(copy: &Copy) -> Result<Option<Book>, Failure> {
    copy.read().map_err(|error| {
        Failure::CouldNot(format!(
            "cannot read the copy of the rules {}: {error}",
            copy.path().display()
        ))
    })
}

fn could_not(why: &Refused) -> Failure {
    Failure::CouldNot(why.to_string())
}

/// Compiles documents of the office as those of the file are.
#[derive(Debug)]
struct Compiler {
    source: Source,
    secret: Secret,
}

impl Compiles for Compiler {
    fn compile(&self, document: &str, files: Files) -> Result<RuleSet, Problems> {
        let loaded = self.source.alone().load_from(document.as_bytes(), files);
        loaded.and_then(|loaded| loaded.compile(self.secret)).map_err(|failure| match failure {
            Failure::Invalid(problems) | Failure::Limit(problems) => problems,
            Failure::No(text) | Failure::Usage(text) | Failure::CouldNot(text) => {
                let problem = Problem {
                    line: 0,
                    column: 0,
                    field: String::new(),
                    found: None,
                    message: text,
                    hint: None,
                    excerpt: None,
                };
                Problems { file: self.source.name(), list: vec![problem], omitted: 0 }
            }
        })
    }
}

/// Where rules of the office come into force.
struct Hall<S, L> {
    limiter: Arc<Limiter<S, L>>,
    status: Arc<Status>,
    repository: Arc<dyn Repository>,
    extraction: Extraction,
}

impl<S: Store + 'static, L: Store + 'static> Desk for Hall<S, L> {
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let (before, version) = (self.limiter.rules(), rules.version());
            let changes = Changes::between(&before, &rules);
            self.limiter.install(rules).await.map_err(|error| error.to_string())?;
            self.status.rules_in_force(version);
            self.extraction.report(&self.limiter.rules(), &self.status);
            Event::Reloaded { source: self.repository.name(), version, changes: &changes }.tell();
            if !self.limiter.rules().rules().iter().any(Rule::is_active) {
                Event::NoRules { source: self.repository.name() }.tell();
            }
            Ok(())
        }
        .boxed()
    }

    fn hear(&self, news: &News<'_>) {
        match news {
            News::InForce { .. } => {}
            News::Faulty { version, why } => {
                self.status.reload_failed(format!(
                    "version {version} of the rules cannot come into force; the log has the reason"
                ));
                Event::VersionRefused { version: *version, why }.tell();
            }
            News::Lost { why } => {
                self.status
                    .rules_unknown("the rules database does not answer; the log has the reason");
                Event::DatabaseLost { why }.tell();
            }
            News::Back => {
                self.status.rules_in_force(self.limiter.rules().version());
                Event::DatabaseBack.tell();
            }
            News::NodeJoined { name } => Event::NodeJoined { node: name }.tell(),
            News::NodeLeft { name, silent } => {
                let how = if *silent { "it stopped reporting" } else { "it was stopped" };
                Event::NodeLeft { node: name, how }.tell();
            }
            News::CopyFailed { why } => Event::CopyFailed { why }.tell(),
        }
    }
}

/// Opens the office over a limiter that has the rules of the start in force.
pub(crate) fn open<S: Store + 'static, L: Store + 'static>(
    start: Start,
    source: &Source,
    settings: &Settings,
    limiter: &Arc<Limiter<S, L>>,
    status: &Arc<Status>,
    clock: WallClock,
) -> Office {
    let Start { book, repository, copy, .. } = start;
    let hall = Hall {
        limiter: Arc::clone(limiter),
        status: Arc::clone(status),
        repository: Arc::clone(&repository),
        extraction: Extraction::of(settings),
    };
    let staff = Staff {
        repository,
        compiler: Arc::new(Compiler { source: source.clone(), secret: settings.secret }),
        desk: Arc::new(hall),
        clock,
        secret: settings.secret,
        identities: identities(settings),
        node: node::name(),
        copy,
    };
    Office::new(staff, book)
}

/// How users and addresses of violations are kept.
pub(crate) const fn identities(settings: &Settings) -> Identities {
    Identities { secret: settings.secret, plain: settings.admin.plain_identities }
}
