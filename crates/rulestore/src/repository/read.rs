//! Reads configurations and their history.

use tidegate_core::time::Timestamp;

use super::RepositoryError;
use super::database::{SqlDatabase, SqlParam, SqlSession, from_stored, to_stored};
use crate::edit::{VersionChange, VersionInfo};
use crate::rule_config::{EntryKind, RuleConfig, StoredEntry};

/// The latest version.
pub(super) async fn head(database: &SqlDatabase) -> Result<u64, RepositoryError> {
    head_in_session(&mut database.reader().await?).await
}

/// The latest version, as a session sees it.
pub(super) async fn head_in_session(session: &mut SqlSession) -> Result<u64, RepositoryError> {
    let sql = "SELECT coalesce(max(number), 0) FROM rule_version";
    let rows: Vec<(i64,)> = session.fetch_rows(sql, &[]).await?;
    Ok(rows.first().map_or(0, |(number,)| from_stored(*number)))
}

/// The whole configuration.
pub(super) async fn load_config(database: &SqlDatabase) -> Result<RuleConfig, RepositoryError> {
    let mut session = database.reader().await?;
    let rows: Vec<(String, String, String, i64)> =
        session.fetch_rows(include_str!("../../sql/select_config.sql"), &[]).await?;
    let (mut head, mut entries) = (0, Vec::with_capacity(rows.len()));
    for (kind, id, value, version) in rows {
        let version = from_stored(version);
        match kind.as_str() {
            "head" => head = version,
            kind => entries.push((parse_kind(kind)?, id, StoredEntry { value, version })),
        }
    }
    Ok(RuleConfig::new(head, entries))
}

/// The changes of a range of versions.
pub(super) async fn changes(
    database: &SqlDatabase,
    since: u64,
    until: u64,
) -> Result<Vec<VersionChange>, RepositoryError> {
    type ChangeSqlRow = (i64, String, String, Option<String>, Option<String>);
    let between = [SqlParam::Number(to_stored(since)), SqlParam::Number(to_stored(until))];
    let mut session = database.reader().await?;
    let rows: Vec<ChangeSqlRow> =
        session.fetch_rows(include_str!("../../sql/select_changes.sql"), &between).await?;
    let change = |(version, kind, id, before, after): ChangeSqlRow| {
        Ok(VersionChange {
            version: from_stored(version),
            kind: parse_kind(&kind)?,
            id,
            before,
            after,
        })
    };
    rows.into_iter().map(change).collect()
}

/// Versions before `before`, newest first.
pub(super) async fn history(
    database: &SqlDatabase,
    before: u64,
    limit: u32,
) -> Result<Vec<VersionInfo>, RepositoryError> {
    type VersionSqlRow = (i64, String, String, i64, i64);
    let page = [SqlParam::Number(to_stored(before)), SqlParam::Number(limit.into())];
    let mut session = database.reader().await?;
    let rows: Vec<VersionSqlRow> =
        session.fetch_rows(include_str!("../../sql/select_versions.sql"), &page).await?;
    let info = |(version, author, reason, at, changes): VersionSqlRow| VersionInfo {
        version: from_stored(version),
        author,
        reason,
        at: Timestamp::from_micros(from_stored(at)),
        changes: from_stored(changes),
    };
    Ok(rows.into_iter().map(info).collect())
}

fn parse_kind(name: &str) -> Result<EntryKind, RepositoryError> {
    let unknown_kind = || {
        RepositoryError::Incompatible(format!("it contains entries of an unknown kind, `{name}`"))
    };
    EntryKind::from_name(name).ok_or_else(unknown_kind)
}
