//! Rules of a table that others edit: read as a whole, compiled as a whole, the last good ones kept.
//! Identity, endpoints and subjects are those of the file.

use std::fmt;

use tidegate_control::{
    Book, Copy, Entry, Files, Flaw, Kind, Refused, RuleTable, TableRules, compile_content,
};
use tidegate_rules::RuleSet;

use super::start::{entries_of, unversioned, write_copy};
use super::{Compiler, WallClock};
use crate::failure::Failure;
use crate::source::Source;
use crate::telemetry::Event;

/// The most mistakes that `/readyz` names.
const MOST_PLACES: usize = 10;

/// A table whose rules are followed.
pub(crate) struct Followed {
    table: RuleTable,
    copy: Copy,
    clock: WallClock,
    /// What was read last, good or bad; unknown after a start from the copy and while the database
    /// does not answer.
    last: Option<TableRules>,
    /// The database did not answer when it was last asked.
    lost: bool,
}

/// Why the rules of a table do not come into force.
#[derive(Debug)]
pub(crate) enum TableError {
    /// The table cannot be read.
    Unread(Refused),
    /// Rows are wrong.
    Invalid { table: String, flaws: Vec<Flaw> },
}

impl Followed {
    pub(super) fn new(table: RuleTable, copy: Copy, clock: WallClock) -> Self {
        Self { table, copy, clock, last: None, lost: false }
    }

    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    pub(super) fn copy(&self) -> &Copy {
        &self.copy
    }

    /// Waits until it is time to look.
    pub(crate) async fn wait_for_change(&self) {
        self.table.wait_for_change().await;
    }

    /// Reads the table; nothing where it says what it said last and `always` is not set.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn look(&mut self, always: bool) -> Result<Option<TableRules>, TableError> {
        match self.table.read().await {
            Ok(rows) if !always && self.last.as_ref() == Some(&rows) => Ok(None),
            Ok(rows) => {
                if std::mem::take(&mut self.lost) {
                    Event::DatabaseBack.tell();
                }
                self.last = Some(rows.clone());
                Ok(Some(rows))
            }
            Err(refused) => {
                if !std::mem::replace(&mut self.lost, true) {
                    Event::DatabaseLost { why: &refused }.tell();
                }
                self.last = None;
                Err(TableError::Unread(refused))
            }
        }
    }

    /// The rules of rows that were read, beside what the file says.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn compile(
        &self,
        rows: TableRules,
        beside: &[Entry],
        compiler: &Compiler,
    ) -> Result<(Book, RuleSet), TableError> {
        let TableRules { entries, mut flaws } = rows;
        let book = unversioned(beside.iter().cloned().chain(entries).collect());
        match compile_content(&book, compiler, Files::All, (self.clock)()) {
            Ok(rules) if flaws.is_empty() => return Ok((book, rules)),
            Ok(_) => {}
            Err(more) => flaws.extend(more),
        }
        Err(TableError::Invalid { table: self.name().to_owned(), flaws })
    }

    /// Reads and compiles.
    ///
    /// # Errors
    /// When the table cannot be read, or rows are wrong.
    pub(super) async fn read(
        &mut self,
        beside: &[Entry],
        compiler: &Compiler,
    ) -> Result<(Book, RuleSet), TableError> {
        let rows = self.look(true).await?.unwrap_or_default();
        self.compile(rows, beside, compiler)
    }

    /// The rules of the copy, beside what the file says now.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn compile_copy(
        &mut self,
        kept: &Book,
        beside: &[Entry],
        compiler: &Compiler,
    ) -> Result<(Book, RuleSet), Failure> {
        // Whatever the table says is news, and is said again.
        self.last = None;
        let rows = TableRules { entries: entries_of(kept, Kind::Rule), flaws: Vec::new() };
        let compiled = self.compile(rows, beside, compiler);
        compiled.map_err(|why| Failure::CouldNot(format!("the copy of the rules: {why}")))
    }

    /// Keeps the rules in force for the next start.
    pub(crate) async fn keep(&self, book: &Book) {
        write_copy(&self.copy, book).await;
    }
}

/// What the file says beside the rules of a table. It must have no rules: which would be in force?
///
/// # Errors
/// When it has rules.
pub(crate) fn without_rules(source: &Source, entries: Vec<Entry>) -> Result<Vec<Entry>, Failure> {
    if source.is_built_in() {
        return Ok(Vec::new());
    }
    if entries.iter().any(|entry| entry.kind == Kind::Rule) {
        return Err(Failure::Usage(format!(
            "{} has rules, and --rules-table says that they come from a table\n  \
             write: rules in one of them; the file keeps `identity`, `subjects` and `server`",
            source.name()
        )));
    }
    Ok(entries)
}

impl TableError {
    /// The reason for callers without a token: only where the mistakes are.
    pub(crate) fn in_public(&self) -> String {
        let Self::Invalid { flaws, .. } = self else {
            return "the rules table cannot be read; the log has the reason".to_owned();
        };
        let place = |flaw: &Flaw| {
            let id = flaw.of.as_ref().map_or("document", |(_, id)| id);
            format!("rule {id} ({})", flaw.field)
        };
        let places: Vec<String> = flaws.iter().take(MOST_PLACES).map(place).collect();
        format!(
            "rows of the rules table are not valid: {}; the log has the reason",
            places.join(", ")
        )
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(refused) => refused.fmt(f),
            Self::Invalid { table, flaws } => {
                write!(f, "rows of {table} are wrong:")?;
                flaws.iter().try_for_each(|flaw| write!(f, "\n  {flaw}"))
            }
        }
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed").field("table", &self.table).finish_non_exhaustive()
    }
}
