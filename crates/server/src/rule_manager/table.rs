//! Rules from a table owned by another application. The table is read and compiled as a whole; if
//! it is invalid, the previous rules stay active. Identity, endpoints and subjects come from the
//! file.

use std::fmt;

use tidegate_rules::RuleSet;
use tidegate_rulestore::{
    EntryKind, EntryUpdate, FileAccess, LocalCache, RepositoryError, RuleConfig, RuleTable,
    TableRules, ValidationError, compile_content,
};

use super::initial_rules::{entries_of_kind, unversioned_config, write_cache};
use super::{DocumentCompiler, WallClock};
use crate::error::CommandError;
use crate::rule_source::DocumentSource;
use crate::telemetry::ServerEvent;

/// Maximum number of errors that `/readyz` lists.
const MAX_SHOWN_ERRORS: usize = 10;

/// A rules table that this process follows.
pub(crate) struct FollowedTable {
    table: RuleTable,
    cache: LocalCache,
    clock: WallClock,
    /// The rows read last, valid or not. `None` after a start from the local copy and while the
    /// database does not answer.
    last: Option<TableRules>,
    /// Whether the database failed to answer the last read.
    is_unreachable: bool,
}

/// Why a table's rules could not be installed.
#[derive(Debug)]
pub(crate) enum TableError {
    /// The table cannot be read.
    Unreadable(RepositoryError),
    /// Rows are invalid.
    Invalid { table: String, errors: Vec<ValidationError> },
}

impl FollowedTable {
    pub(super) fn new(table: RuleTable, cache: LocalCache, clock: WallClock) -> Self {
        Self { table, cache, clock, last: None, is_unreachable: false }
    }

    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    pub(super) fn cache(&self) -> &LocalCache {
        &self.cache
    }

    /// Completes when the table should be read again.
    pub(crate) async fn wait_for_change(&self) {
        self.table.wait_for_change().await;
    }

    /// Reads the table; `None` if its content is unchanged and `always` is not set.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(crate) async fn read_if_changed(
        &mut self,
        always: bool,
    ) -> Result<Option<TableRules>, TableError> {
        match self.table.read().await {
            Ok(rows) if !always && self.last.as_ref() == Some(&rows) => Ok(None),
            Ok(rows) => {
                if std::mem::take(&mut self.is_unreachable) {
                    ServerEvent::DatabaseRecovered.log();
                }
                self.last = Some(rows.clone());
                Ok(Some(rows))
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_unreachable, true) {
                    ServerEvent::DatabaseUnreachable { why: &error }.log();
                }
                self.last = None;
                Err(TableError::Unreadable(error))
            }
        }
    }

    /// Compiles the rows together with the entries of the file.
    ///
    /// # Errors
    /// All errors in the rows.
    pub(crate) fn compile(
        &self,
        rows: TableRules,
        file_entries: &[EntryUpdate],
        compiler: &DocumentCompiler,
    ) -> Result<(RuleConfig, RuleSet), TableError> {
        let TableRules { entries, mut errors } = rows;
        let config = unversioned_config(file_entries.iter().cloned().chain(entries).collect());
        match compile_content(&config, compiler, FileAccess::All, (self.clock)()) {
            Ok(rules) if errors.is_empty() => return Ok((config, rules)),
            Ok(_) => {}
            Err(more) => errors.extend(more),
        }
        Err(TableError::Invalid { table: self.name().to_owned(), errors })
    }

    /// Reads and compiles the table.
    ///
    /// # Errors
    /// When the table cannot be read, or rows are invalid.
    pub(super) async fn read(
        &mut self,
        file_entries: &[EntryUpdate],
        compiler: &DocumentCompiler,
    ) -> Result<(RuleConfig, RuleSet), TableError> {
        let rows = self.read_if_changed(true).await?.unwrap_or_default();
        self.compile(rows, file_entries, compiler)
    }

    /// Compiles the rules of the local copy with the current entries of the file.
    ///
    /// # Errors
    /// When the rules are invalid.
    pub(super) fn compile_cached(
        &mut self,
        cached: &RuleConfig,
        file_entries: &[EntryUpdate],
        compiler: &DocumentCompiler,
    ) -> Result<(RuleConfig, RuleSet), CommandError> {
        // The next read counts as a change, whatever the table contains.
        self.last = None;
        let rows =
            TableRules { entries: entries_of_kind(cached, EntryKind::Rule), errors: Vec::new() };
        let compiled = self.compile(rows, file_entries, compiler);
        compiled.map_err(|why| {
            CommandError::Failed(format!("the local copy of the rules is not usable: {why}"))
        })
    }

    /// Saves the active rules for the next start.
    pub(crate) async fn write_to_cache(&self, config: &RuleConfig) {
        write_cache(&self.cache, config).await;
    }
}

/// Returns the file's entries for use with a rules table. The file must not contain rules, because
/// it would be unclear which ones apply.
///
/// # Errors
/// When the file contains rules.
pub(crate) fn require_no_rules(
    source: &DocumentSource,
    entries: Vec<EntryUpdate>,
) -> Result<Vec<EntryUpdate>, CommandError> {
    if source.is_built_in() {
        return Ok(Vec::new());
    }
    if entries.iter().any(|entry| entry.kind == EntryKind::Rule) {
        return Err(CommandError::Usage(format!(
            "{} contains rules, but --rules-table says to read the rules from a table\n  \
             write: rules in only one of them; the file keeps `identity`, `subjects` and `server`",
            source.name()
        )));
    }
    Ok(entries)
}

impl TableError {
    /// The reason for callers without a token. Names only the locations of the errors.
    pub(crate) fn public_message(&self) -> String {
        let Self::Invalid { errors, .. } = self else {
            return "the rules table cannot be read; see the log for the reason".to_owned();
        };
        let location = |error: &ValidationError| {
            let id = error.entry.as_ref().map_or("document", |(_, id)| id);
            format!("rule {id} ({})", error.field)
        };
        let locations: Vec<String> = errors.iter().take(MAX_SHOWN_ERRORS).map(location).collect();
        format!(
            "rows of the rules table are not valid: {}; see the log for the reason",
            locations.join(", ")
        )
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Invalid { table, errors } => {
                write!(f, "rows of {table} are not valid:")?;
                errors.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

impl fmt::Debug for FollowedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowedTable").field("table", &self.table).finish_non_exhaustive()
    }
}
