//! Test databases for repositories, and helpers that build edits.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::time::Timestamp;
use tidegate_rulestore::{EntryKind, EntryUpdate, Repository, RuleEdit, open};
use tidegate_testkit::postgres::TestDatabase;

/// The default time of an edit.
pub(crate) const NOON: Timestamp = Timestamp::from_micros(1_793_000_000_123_457);

/// The database of one test.
#[derive(Debug)]
pub(crate) enum RepositoryFixture {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

impl RepositoryFixture {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(TestDatabase::create())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("sqlite:{}", self.file().display()),
            Self::Postgres(database) => database.url(),
        }
    }

    /// The SQLite file.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::Sqlite(folder) => folder.path().join("rules.db"),
            Self::Postgres(database) => panic!("{} is no file", database.name()),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Repository> {
        open(&self.url()).await.expect("a repository")
    }

    /// Runs SQL directly, bypassing the repository.
    pub(crate) fn sql(&self, sql: &str) -> String {
        match self {
            Self::Postgres(database) => database.sql(sql),
            Self::Sqlite(_) => {
                let output = self.sqlite3(sql);
                assert!(output.status.success(), "{sql}: {output:?}");
                String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
            }
        }
    }

    /// Runs SQL that the database must refuse, and returns the error message.
    pub(crate) fn refused_sql(&self, sql: &str) -> String {
        match self {
            Self::Postgres(database) => database.sql_error(sql),
            Self::Sqlite(_) => {
                let output = self.sqlite3(sql);
                assert!(!output.status.success(), "{sql} is not refused");
                String::from_utf8(output.stderr).expect("text")
            }
        }
    }

    fn sqlite3(&self, sql: &str) -> std::process::Output {
        let mut command = std::process::Command::new("sqlite3");
        command.arg("-bail").arg(self.file()).arg(".timeout 5000").arg(sql);
        command.output().expect("sqlite3: run `cargo xtask setup`")
    }
}

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! test_on_both_databases {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::common::RepositoryFixture::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::common::RepositoryFixture::postgres()).await;
            })+
        }
    };
}
pub(crate) use test_on_both_databases;

/// An edit with default author, reason and time.
pub(crate) fn edit(entries: impl IntoIterator<Item = EntryUpdate>) -> RuleEdit {
    let (author, reason) = ("alice".to_owned(), "because".to_owned());
    RuleEdit { author, reason, at: NOON, entries: entries.into_iter().collect() }
}

/// An update that sets an entry.
pub(crate) fn put(kind: EntryKind, id: &str, value: &str) -> EntryUpdate {
    EntryUpdate { kind, id: id.to_owned(), value: Some(value.to_owned()) }
}

/// An update that removes an entry.
pub(crate) fn remove(kind: EntryKind, id: &str) -> EntryUpdate {
    EntryUpdate { kind, id: id.to_owned(), value: None }
}

/// A long incompressible text. PostgreSQL compresses index entries, so a repetitive text would fit
/// in spite of its length.
pub(crate) fn random_text(chars: usize) -> String {
    let mut state = 7_u64;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let code = u32::try_from(state >> 40).unwrap_or_default() % 20_000;
        char::from_u32(0x4E00 + code).unwrap_or('x')
    });
    random.take(chars).collect()
}
