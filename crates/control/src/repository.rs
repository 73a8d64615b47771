//! The face of everything that keeps books.

mod columns;
mod commit;
mod database;
mod listen;
mod log;
mod nodes;
mod open;
mod patient;
mod postgres;
mod read;
mod read_only;
mod refusal;
mod remembered;
mod schema;
mod sheet;
mod source;
mod sql;
mod sqlite;
mod stir;
mod table;

use std::fmt;

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;

use crate::book::Book;
use crate::edit::{Change, Edit, Signed};
use crate::node::Node;
use crate::violation::{Batch, Page, ViolationQuery};

pub use open::{migrate, open, sqlite_file};
pub use patient::Patient;
pub use read_only::ReadOnlyRules;
pub use source::RuleSource;
pub use table::{RuleTable, TableColumns, TableRules};

/// Keeps books, their versions, and violations.
///
/// What is on record is never half of a change: a version is there with all its changes or not at all.
pub trait Repository: Send + Sync + fmt::Debug {
    /// Where it is, without secrets.
    fn name(&self) -> &str;

    /// What kind of source it is, which says whether [`Self::commit`] takes changes.
    fn source(&self) -> RuleSource {
        RuleSource::Database
    }

    /// The latest version; 0 where nobody has written any.
    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>>;

    /// The whole book at its latest version.
    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>>;

    /// Everything that changed in the versions after `since` up to and with `until`, in order.
    fn changes(&self, since: u64, until: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>>;

    /// Who made versions, newest first, those before `before`, at most `most`.
    fn history(&self, before: u64, most: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>>;

    /// Makes the next version after `on`, all of it or nothing. Entries that already say what they are to
    /// say are left out; when nothing is left, `on` stays the latest.
    ///
    /// # Errors
    /// [`Refused::Outdated`] when `on` is not the latest version any more, [`Refused::Unfit`] when it
    /// cannot be kept (a character NUL, an id twice or too long, a value that is no JSON, one key
    /// pattern in two rules).
    fn commit<'a>(&'a self, on: u64, edit: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>>;

    /// Waits until there may be a new version: somebody said so, or somebody may have without being heard.
    fn stirred(&self) -> BoxFuture<'_, Signal>;

    /// Writes violations, all of them or none. A batch that is on record already is left as it is.
    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>>;

    /// Violations, newest first.
    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>>;

    /// Drops violations from before an instant, and the oldest of more than `most`. Tells how many.
    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Refused>>;

    /// Keeps what a node says of itself in the place of what it said before; nodes from before `forget` are dropped.
    fn check_in<'a>(
        &'a self,
        node: &'a Node,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), Refused>>;

    /// Drops a node.
    fn leave<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refused>>;

    /// All nodes that are kept, by name.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>>;

    /// Leaves it as a whole: everything of SQLite is in its one file then. Nothing is asked after that.
    fn close(&self) -> BoxFuture<'_, Result<(), Refused>> {
        Box::pin(async { Ok(()) })
    }
}

/// What [`Repository::stirred`] heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// There is a new version.
    Told,
    /// It is time to look.
    Look,
}

/// Why a repository does not do what it is asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Somebody else made a version meanwhile.
    Outdated {
        /// The latest version.
        head: u64,
    },
    /// What it is asked to keep, or where, is not as it must be.
    Unfit(String),
    /// The rules are changed elsewhere.
    ReadOnly {
        /// What kind of source they come from.
        source: RuleSource,
        /// What that is called.
        name: String,
    },
    /// It cannot be reached, or does not answer in time.
    Gone(String),
    /// What it holds is not what we wrote, or newer than we know.
    Foreign(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outdated { head } => {
                write!(f, "somebody else changed the rules meanwhile; they are at version {head}")
            }
            Self::Unfit(why) => f.write_str(why),
            Self::ReadOnly { source, name } => f.write_str(&source.advice(name)),
            Self::Gone(why) => write!(f, "the rules database does not answer: {why}"),
            Self::Foreign(why) => write!(f, "the rules database is not one of ours: {why}"),
        }
    }
}

impl std::error::Error for Refused {}
