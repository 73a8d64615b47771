//! Loads the rules that a process starts with: from the database of `--rules-db`, the table of
//! `--rules-table`, or the file.

use std::sync::Arc;

use tidegate_rules::RuleSet;
use tidegate_rulestore::{
    ChangeAuthor, EntryKind, EntryUpdate, FileAccess, LazyRepository, LocalCache, ReadOnlyRules,
    Repository, RepositoryError, RuleConfig, RuleEdit, RuleSource, RuleTable, StoredEntry, compile,
};

use super::seed::{AUTHOR, SeedCheck};
use super::table::{FollowedTable, require_no_rules};
use super::{DocumentCompiler, WallClock};
use crate::config::Settings;
use crate::error::CommandError;
use crate::rule_source::{DocumentSource, LoadedDocument};
use crate::telemetry::ServerEvent;

/// The rules that a process starts with, and where they came from.
pub(crate) struct InitialRules {
    pub(crate) config: RuleConfig,
    pub(crate) repository: Arc<dyn Repository>,
    pub(crate) origin: RuleSetOrigin,
    pub(crate) cache: Option<LocalCache>,
}

/// The source that the process follows for later changes.
#[derive(Debug)]
pub(crate) enum RuleSetOrigin {
    /// The file.
    File(Arc<ReadOnlyRules>),
    /// A table owned by another application, combined with the file's settings and subjects.
    Table(Arc<ReadOnlyRules>, Box<FollowedTable>),
    /// The database; the file only seeded it.
    Database(SeedCheck),
}

/// Loads the initial rules.
///
/// # Errors
/// When the database does not answer and there is no local copy, or the rules are invalid.
pub(crate) async fn load_initial_rules(
    source: &DocumentSource,
    loaded: &LoadedDocument,
    settings: &Settings,
    clock: &WallClock,
) -> Result<(RuleSet, InitialRules), CommandError> {
    let cache =
        settings.admin.rules_copy.clone().unwrap_or_else(|| source.sibling_path("rules-copy"));
    let cache = LocalCache::new(cache);
    match (&settings.admin.rules_db, &settings.admin.rules_table) {
        (Some(url), _) => from_database(url, source, loaded, settings, clock, cache).await,
        (None, Some(table)) => {
            let table = RuleTable::new(&table.url, table.columns.clone(), table.interval)
                .map_err(|refused| CommandError::Usage(format!("--rules-table: {refused}")))?;
            from_table(table, source, loaded, settings, clock, cache).await
        }
        (None, None) => from_file(source, loaded, settings),
    }
}

async fn from_database(
    url: &str,
    source: &DocumentSource,
    loaded: &LoadedDocument,
    settings: &Settings,
    clock: &WallClock,
    cache: LocalCache,
) -> Result<(RuleSet, InitialRules), CommandError> {
    let compiler = DocumentCompiler { source: source.clone(), secret: settings.secret };
    let (repository, config): (Arc<dyn Repository>, RuleConfig) =
        match tidegate_rulestore::open(url).await {
            Ok(repository) => {
                let config = load_or_seed(&*repository, source, loaded, settings, clock).await?;
                (repository, config)
            }
            Err(why @ RepositoryError::Unavailable(_)) => {
                let Some(config) = read_cache(&cache)? else { return Err(database_error(&why)) };
                ServerEvent::RulesFromCache {
                    path: cache.path(),
                    version: config.version(),
                    why: &why,
                }
                .log();
                (Arc::new(LazyRepository::new(url).map_err(|why| database_error(&why))?), config)
            }
            Err(why) => return Err(database_error(&why)),
        };
    let rules = compile(&config, &compiler, FileAccess::All, clock()).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let (name, version) = (repository.name(), config.version());
        CommandError::Failed(format!(
            "version {version} of {name} is not valid:\n  {}",
            lines.join("\n  ")
        ))
    })?;
    write_cache(&cache, &config).await;
    let origin = RuleSetOrigin::Database(SeedCheck::new(source, loaded, settings.secret));
    Ok((rules, InitialRules { config, repository, origin, cache: Some(cache) }))
}

async fn from_table(
    table: RuleTable,
    source: &DocumentSource,
    loaded: &LoadedDocument,
    settings: &Settings,
    clock: &WallClock,
    cache: LocalCache,
) -> Result<(RuleSet, InitialRules), CommandError> {
    let compiler = DocumentCompiler { source: source.clone(), secret: settings.secret };
    let mut followed = FollowedTable::new(table, cache, Arc::clone(clock));
    let entries = loaded.entries(&loaded.compile(settings.secret)?, settings.secret)?;
    let file_entries = require_no_rules(source, entries)?;
    let (config, rules) = match followed.read(&file_entries, &compiler).await {
        Ok(read) => read,
        Err(why) => {
            let Some(cached) = read_cache(followed.cache())? else {
                return Err(CommandError::Failed(why.to_string()));
            };
            let path = followed.cache().path();
            ServerEvent::RulesFromCache { path, version: cached.version(), why: &why }.log();
            followed.compile_cached(&cached, &file_entries, &compiler)?
        }
    };
    write_cache(followed.cache(), &config).await;
    let read_only = ReadOnlyRules::new(RuleSource::Table, followed.name(), config.clone());
    let read_only = Arc::new(read_only);
    let repository = Arc::clone(&read_only) as Arc<dyn Repository>;
    let origin = RuleSetOrigin::Table(read_only, Box::new(followed));
    Ok((rules, InitialRules { config, repository, origin, cache: None }))
}

fn from_file(
    source: &DocumentSource,
    loaded: &LoadedDocument,
    settings: &Settings,
) -> Result<(RuleSet, InitialRules), CommandError> {
    // Earlier versions moved the rules into this database on the first change and then ignored the
    // file.
    let database = source.sibling_path("db");
    if database.exists() {
        ServerEvent::DatabaseIgnored { path: &database, source: &source.name() }.log();
    }
    let rules = loaded.compile(settings.secret)?;
    let config = unversioned_config(loaded.entries(&rules, settings.secret)?);
    let from_file = ReadOnlyRules::new(RuleSource::File, &source.name(), config.clone());
    let from_file = Arc::new(from_file);
    let repository = Arc::clone(&from_file) as Arc<dyn Repository>;
    Ok((
        rules,
        InitialRules { config, repository, origin: RuleSetOrigin::File(from_file), cache: None },
    ))
}

/// Turns entries into a configuration with version 0.
pub(crate) fn unversioned_config(entries: Vec<EntryUpdate>) -> RuleConfig {
    let stored = entries.into_iter().filter_map(|entry| {
        Some((entry.kind, entry.id, StoredEntry { value: entry.value?, version: 0 }))
    });
    RuleConfig::new(0, stored)
}

/// The entries of one kind.
pub(crate) fn entries_of_kind(config: &RuleConfig, kind: EntryKind) -> Vec<EntryUpdate> {
    let all = config.entries(kind, None);
    all.map(|(id, entry)| EntryUpdate { kind, id: id.to_owned(), value: Some(entry.value.clone()) })
        .collect()
}

/// Loads the configuration from the database. An empty database is seeded from the file first.
async fn load_or_seed(
    repository: &dyn Repository,
    source: &DocumentSource,
    loaded: &LoadedDocument,
    settings: &Settings,
    clock: &WallClock,
) -> Result<RuleConfig, CommandError> {
    let config = repository.load_config().await.map_err(|why| database_error(&why))?;
    if config.version() > 0 || source.is_built_in() {
        return Ok(config);
    }
    let entries: Vec<EntryUpdate> =
        loaded.entries(&loaded.compile(settings.secret)?, settings.secret)?;
    let ChangeAuthor { author, reason } = ChangeAuthor {
        author: AUTHOR.to_owned(),
        reason: format!("imported from {}", source.name()),
    };
    match repository.commit(0, &RuleEdit { author, reason, at: clock(), entries }).await {
        // Another node seeded the database first.
        Ok(_) | Err(RepositoryError::VersionConflict { .. }) => {}
        Err(why) => return Err(database_error(&why)),
    }
    repository.load_config().await.map_err(|why| database_error(&why))
}

fn read_cache(cache: &LocalCache) -> Result<Option<RuleConfig>, CommandError> {
    cache.read().map_err(|error| {
        CommandError::Failed(format!(
            "cannot read {}, the local copy of the rules: {error}",
            cache.path().display()
        ))
    })
}

/// Writes the local copy for the next start; a failure is only logged.
pub(super) async fn write_cache(cache: &LocalCache, config: &RuleConfig) {
    if let Err(why) = cache.write(config).await {
        ServerEvent::CacheWriteFailed { why: &why }.log();
    }
}

fn database_error(why: &RepositoryError) -> CommandError {
    CommandError::Failed(why.to_string())
}
