//! Creates a version in one transaction: takes the next number, updates the entries and writes the
//! audit rows.
//!
//! The number is taken first. Concurrent writers then wait for this transaction or fail, so
//! everything read afterwards stays valid until the commit.

use std::collections::{HashMap, HashSet};

use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

use super::RepositoryError;
use super::database::{SqlDatabase, SqlParam, SqlSession, to_stored};
use super::entry_tables::{EntryTable, column_values, table};
use super::json_chunks::JsonChunks;
use super::postgres_listener::CHANNEL;
use super::read::head_in_session;
use crate::edit::{EntryUpdate, RuleEdit};
use crate::rule_config::EntryKind;

/// Maximum length of an id; an index cannot hold a much longer one.
const MAX_ID_BYTES: usize = 512;

/// An entry's value before the edit.
struct PreviousValue {
    value: String,
    created_at: i64,
}

/// An entry whose value changes.
struct ChangedEntry<'a> {
    entry: &'a EntryUpdate,
    before: Option<PreviousValue>,
}

/// Creates the version after `on` and returns the latest version.
pub(super) async fn commit(
    database: &SqlDatabase,
    on: u64,
    edit: &RuleEdit,
) -> Result<u64, RepositoryError> {
    validate_edit(edit)?;
    let version = on.saturating_add(1);
    let mut session = database.begin_transaction().await?;
    if !insert_version(&mut session, version, edit).await? {
        let head = head_in_session(&mut session).await?;
        session.rollback().await?;
        return Err(RepositoryError::VersionConflict { head });
    }
    let changed = changed_entries(&mut session, edit).await?;
    if changed.is_empty() {
        session.rollback().await?;
        return Ok(on);
    }
    for kind in EntryKind::ALL {
        replace_rows(&mut session, kind, &changed, (version, edit)).await?;
    }
    insert_audit(&mut session, version, &changed).await?;
    if session.is_postgres() {
        let notification = [SqlParam::Text(CHANNEL), SqlParam::Text(&version.to_string())];
        session.execute("SELECT pg_notify($1, $2)", &notification).await?;
    }
    session.commit().await.map_err(|refused| mark_outcome_unknown(version, refused))?;
    Ok(version)
}

/// Rejects edits that could not be stored unchanged.
fn validate_edit(edit: &RuleEdit) -> Result<(), RepositoryError> {
    let mut seen = HashSet::new();
    for (what, text) in [("author", &edit.author), ("reason", &edit.reason)] {
        if text.contains('\0') {
            return Err(RepositoryError::Invalid(format!("the {what} contains {NUL}")));
        }
    }
    for entry in &edit.entries {
        let problem = match seen.insert((entry.kind, &entry.id)) {
            true => find_entry_problem(entry),
            false => Some("is changed twice in one edit; send only its final value".to_owned()),
        };
        if let Some(problem) = problem {
            let (kind, id) = (entry.kind.name(), entry.id.chars().take(100).collect::<String>());
            return Err(RepositoryError::Invalid(format!("the {kind} {id:?} {problem}")));
        }
    }
    Ok(())
}

const NUL: &str = "a NUL character, which cannot be stored; remove it";

/// The first problem of an entry, if any.
fn find_entry_problem(EntryUpdate { id, value, .. }: &EntryUpdate) -> Option<String> {
    let value = value.as_deref().unwrap_or("null");
    if id.len() > MAX_ID_BYTES {
        let bytes = id.len();
        return Some(format!("has an id of {bytes} bytes; the maximum is {MAX_ID_BYTES}"));
    }
    if id.contains('\0') || value.contains('\0') {
        return Some(format!("contains {NUL}"));
    }
    let error = serde_json::from_str::<IgnoredAny>(value).err()?;
    Some(format!("is not valid JSON: {error}"))
}

/// Inserts the version row; returns `false` if `version` is not the next number.
async fn insert_version(
    session: &mut SqlSession,
    version: u64,
    edit: &RuleEdit,
) -> Result<bool, RepositoryError> {
    let values = [
        SqlParam::Number(to_stored(version)),
        SqlParam::Text(&edit.author),
        SqlParam::Text(&edit.reason),
        SqlParam::Number(to_stored(edit.at.as_micros())),
    ];
    Ok(session.execute(include_str!("../../sql/insert_version.sql"), &values).await? == 1)
}

/// The entries whose stored value differs from the requested one.
async fn changed_entries<'a>(
    session: &mut SqlSession,
    edit: &'a RuleEdit,
) -> Result<Vec<ChangedEntry<'a>>, RepositoryError> {
    let mut stored = HashMap::new();
    for kind in EntryKind::ALL {
        let EntryTable { name, id, value, .. } = table(kind);
        let what = format!("{id}, {value}, created_at FROM {name}");
        let sql = session
            .expand_rows(&format!("SELECT {what} WHERE {id} IN (SELECT e->>0 FROM {{rows}})"));
        let ids = edit.entries.iter().filter(|entry| entry.kind == kind).map(|entry| [&entry.id]);
        for chunk in JsonChunks::new(ids) {
            let rows: Vec<(String, String, i64)> =
                session.fetch_rows(sql.clone(), &[SqlParam::Text(&chunk?)]).await?;
            stored.extend(
                rows.into_iter().map(|(id, value, created_at)| {
                    ((kind, id), PreviousValue { value, created_at })
                }),
            );
        }
    }
    let changed = edit.entries.iter().filter_map(|entry| {
        let before = stored.remove(&(entry.kind, entry.id.clone()));
        let same = before.as_ref().map(|before| &before.value) == entry.value.as_ref();
        (!same).then_some(ChangedEntry { entry, before })
    });
    Ok(changed.collect())
}

/// Replaces the rows of a kind: deletes the old rows, then inserts the new ones. In this order, two
/// rules can swap values that have to be unique.
async fn replace_rows(
    session: &mut SqlSession,
    kind: EntryKind,
    changed: &[ChangedEntry<'_>],
    (version, edit): (u64, &RuleEdit),
) -> Result<(), RepositoryError> {
    let of_kind = || changed.iter().filter(|changed| changed.entry.kind == kind);
    let EntryTable { name, id, value, columns } = table(kind);
    let sql = session
        .expand_rows(&format!("DELETE FROM {name} WHERE {id} IN (SELECT e->>0 FROM {{rows}})"));
    let old = of_kind().filter(|changed| changed.before.is_some());
    for chunk in JsonChunks::new(old.map(|changed| [&changed.entry.id])) {
        session.execute(sql.clone(), &[SqlParam::Text(&chunk?)]).await?;
    }
    let columns =
        [(*id, "text"), (*value, "text"), ("version", "bigint"), ("created_at", "bigint")]
            .into_iter()
            .chain(columns.iter().copied());
    let (names, casts): (Vec<&str>, Vec<String>) = columns
        .enumerate()
        .map(|(at, (column, sql_type))| (column, format!("CAST(e->>{at} AS {sql_type})")))
        .unzip();
    let (names, casts) = (names.join(", "), casts.join(", "));
    let sql =
        session.expand_rows(&format!("INSERT INTO {name} ({names}) SELECT {casts} FROM {{rows}}"));
    for chunk in JsonChunks::new(of_kind().filter_map(|changed| entry_row(changed, version, edit)))
    {
        session.execute(sql.clone(), &[SqlParam::Text(&chunk?)]).await?;
    }
    Ok(())
}

fn entry_row(changed: &ChangedEntry<'_>, version: u64, edit: &RuleEdit) -> Option<Vec<Json>> {
    let EntryUpdate { kind, id, value } = changed.entry;
    let value = value.as_ref()?;
    let created_at = match &changed.before {
        Some(before) => before.created_at,
        None => to_stored(edit.at.as_micros()),
    };
    let mut row = vec![json!(id), json!(value), json!(version), json!(created_at)];
    row.extend(column_values(*kind, id, value));
    Some(row)
}

async fn insert_audit(
    session: &mut SqlSession,
    version: u64,
    changed: &[ChangedEntry<'_>],
) -> Result<(), RepositoryError> {
    let rows = changed.iter().enumerate().map(|(at, changed)| {
        let EntryUpdate { kind, id, value } = changed.entry;
        let before = changed.before.as_ref().map(|before| &before.value);
        (version, at + 1, kind.name(), id, before, value)
    });
    let sql = session.expand_rows(include_str!("../../sql/insert_changes.sql"));
    for chunk in JsonChunks::new(rows) {
        session.execute(sql.clone(), &[SqlParam::Text(&chunk?)]).await?;
    }
    Ok(())
}

/// If the connection breaks during the commit, the outcome of the transaction is unknown.
fn mark_outcome_unknown(version: u64, refused: RepositoryError) -> RepositoryError {
    match refused {
        RepositoryError::Unavailable(why) => RepositoryError::Unavailable(format!(
            "{why} (it is unknown whether version {version} was committed; check the history \
             before retrying)"
        )),
        other => other,
    }
}
