//! Where the rules come from that a process starts with: the database of `--rules-db`, the table of
//! `--rules-table`, or the file.

use std::sync::Arc;

use tidegate_control::{
    Book, By, Copy, Edit, Entry, Files, Kept, Kind, Patient, ReadOnlyRules, Refused, Repository,
    RuleSource, RuleTable, compile,
};
use tidegate_rules::RuleSet;

use super::seed::{AUTHOR, SeedCheck};
use super::table::{Followed, without_rules};
use super::{Compiler, WallClock};
use crate::config::Settings;
use crate::failure::Failure;
use crate::source::{Loaded, Source};
use crate::telemetry::Event;

/// Where the rules that a process starts with are from.
pub(crate) struct Start {
    pub(crate) book: Book,
    pub(crate) repository: Arc<dyn Repository>,
    pub(crate) origin: Origin,
    pub(crate) copy: Option<Copy>,
}

/// What the rules of a process follow from then on.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The file.
    File(Arc<ReadOnlyRules>),
    /// A table that others edit, beside the file's settings.
    Table(Arc<ReadOnlyRules>, Box<Followed>),
    /// The database; the file only seeded it.
    Database(SeedCheck),
}

/// Finds the rules to start with.
///
/// # Errors
/// When the database does not answer and there is no copy, or the rules are wrong.
pub(crate) async fn start(
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    clock: &WallClock,
) -> Result<(RuleSet, Start), Failure> {
    let copy = settings.admin.rules_copy.clone().unwrap_or_else(|| source.beside("rules-copy"));
    let copy = Copy::at(copy);
    match (&settings.admin.rules_db, &settings.admin.rules_table) {
        (Some(url), _) => from_database(url, source, loaded, settings, clock, copy).await,
        (None, Some(table)) => {
            let table = RuleTable::new(&table.url, table.columns.clone(), table.interval)
                .map_err(|refused| Failure::Usage(format!("--rules-table: {refused}")))?;
            from_table(table, source, loaded, settings, clock, copy).await
        }
        (None, None) => from_file(source, loaded, settings),
    }
}

async fn from_database(
    url: &str,
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    clock: &WallClock,
    copy: Copy,
) -> Result<(RuleSet, Start), Failure> {
    let compiler = Compiler { source: source.clone(), secret: settings.secret };
    let (repository, book): (Arc<dyn Repository>, Book) = match tidegate_control::open(url).await {
        Ok(repository) => {
            let book = taken_over(&*repository, source, loaded, settings, clock).await?;
            (repository, book)
        }
        Err(why @ Refused::Gone(_)) => {
            let Some(book) = read_copy(&copy)? else { return Err(could_not(&why)) };
            Event::RulesFromCopy { path: copy.path(), version: book.version(), why: &why }.tell();
            (Arc::new(Patient::new(url).map_err(|why| could_not(&why))?), book)
        }
        Err(why) => return Err(could_not(&why)),
    };
    let rules = compile(&book, &compiler, Files::All, clock()).map_err(|flaws| {
        let told: Vec<String> = flaws.iter().map(ToString::to_string).collect();
        let (name, version) = (repository.name(), book.version());
        Failure::CouldNot(format!("version {version} of {name} is wrong:\n  {}", told.join("\n  ")))
    })?;
    write_copy(&copy, &book).await;
    let origin = Origin::Database(SeedCheck::new(source, loaded, settings.secret));
    Ok((rules, Start { book, repository, origin, copy: Some(copy) }))
}

async fn from_table(
    table: RuleTable,
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
    clock: &WallClock,
    copy: Copy,
) -> Result<(RuleSet, Start), Failure> {
    let compiler = Compiler { source: source.clone(), secret: settings.secret };
    let mut followed = Followed::new(table, copy, Arc::clone(clock));
    let entries = loaded.entries(&loaded.compile(settings.secret)?, settings.secret)?;
    let beside = without_rules(source, entries)?;
    let (book, rules) = match followed.read(&beside, &compiler).await {
        Ok(read) => read,
        Err(why) => {
            let Some(kept) = read_copy(followed.copy())? else {
                return Err(Failure::CouldNot(why.to_string()));
            };
            let path = followed.copy().path();
            Event::RulesFromCopy { path, version: kept.version(), why: &why }.tell();
            followed.compile_copy(&kept, &beside, &compiler)?
        }
    };
    write_copy(followed.copy(), &book).await;
    let read_only = ReadOnlyRules::new(RuleSource::Table, followed.name(), book.clone());
    let read_only = Arc::new(read_only);
    let repository = Arc::clone(&read_only) as Arc<dyn Repository>;
    let origin = Origin::Table(read_only, Box::new(followed));
    Ok((rules, Start { book, repository, origin, copy: None }))
}

fn from_file(
    source: &Source,
    loaded: &Loaded,
    settings: &Settings,
) -> Result<(RuleSet, Start), Failure> {
    // Earlier versions moved rules into this database with the first change, and then read only it.
    let beside = source.beside("db");
    if beside.exists() {
        Event::DatabaseIgnored { path: &beside, source: &source.name() }.tell();
    }
    let rules = loaded.compile(settings.secret)?;
    let book = unversioned(loaded.entries(&rules, settings.secret)?);
    let from_file = ReadOnlyRules::new(RuleSource::File, &source.name(), book.clone());
    let from_file = Arc::new(from_file);
    let repository = Arc::clone(&from_file) as Arc<dyn Repository>;
    Ok((rules, Start { book, repository, origin: Origin::File(from_file), copy: None }))
}

/// Entries as a book of version 0.
pub(crate) fn unversioned(entries: Vec<Entry>) -> Book {
    let kept = entries
        .into_iter()
        .filter_map(|entry| Some((entry.kind, entry.id, Kept { value: entry.value?, version: 0 })));
    Book::new(0, kept)
}

/// The entries of a kind in a book.
pub(crate) fn entries_of(book: &Book, kind: Kind) -> Vec<Entry> {
    let all = book.all(kind, None);
    all.map(|(id, kept)| Entry { kind, id: id.to_owned(), value: Some(kept.value.clone()) })
        .collect()
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
        By { author: AUTHOR.to_owned(), reason: format!("taken over from {}", source.name()) };
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

/// Writes the copy for the next start, and says so where that fails.
pub(super) async fn write_copy(copy: &Copy, book: &Book) {
    if let Err(why) = copy.write(book).await {
        Event::CopyFailed { why: &why }.tell();
    }
}

fn could_not(why: &Refused) -> Failure {
    Failure::CouldNot(why.to_string())
}
