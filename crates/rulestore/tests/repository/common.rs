//! Places for repositories, and edits to make there.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::time::Timestamp;
use tidegate_rulestore::{EntryKind, EntryUpdate, Repository, RuleEdit, open};
use tidegate_testkit::postgres::TestDatabase;

/// When edits are made unless it matters.
pub(crate) const NOON: Timestamp = Timestamp::from_micros(1_793_000_000_123_457);

/// Where a repository of the test's own is.
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

    /// SQLite's file.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::Sqlite(folder) => folder.path().join("rules.db"),
            Self::Postgres(database) => panic!("{} is no file", database.name()),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Repository> {
        open(&self.url()).await.expect("a repository")
    }

    /// Runs SQL there, past the repository.
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

    /// What is said to SQL that is refused there.
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

/// The same tests on both.
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

/// An edit by the same person at noon.
pub(crate) fn edit(entries: impl IntoIterator<Item = EntryUpdate>) -> RuleEdit {
    let (author, reason) = ("alice".to_owned(), "because".to_owned());
    RuleEdit { author, reason, at: NOON, entries: entries.into_iter().collect() }
}

/// An entry that is to say something.
pub(crate) fn put(kind: EntryKind, id: &str, value: &str) -> EntryUpdate {
    EntryUpdate { kind, id: id.to_owned(), value: Some(value.to_owned()) }
}

/// An entry that is to go.
pub(crate) fn remove(kind: EntryKind, id: &str) -> EntryUpdate {
    EntryUpdate { kind, id: id.to_owned(), value: None }
}

/// A long text that cannot be compressed: an index would hold one that can be in spite of its
/// length.
pub(crate) fn random_text(signs: usize) -> String {
    let mut state = 7_u64;
    let sign = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let code = u32::try_from(state >> 40).unwrap_or_default() % 20_000;
        char::from_u32(0x4E00 + code).unwrap_or('x')
    });
    sign.take(signs).collect()
}
