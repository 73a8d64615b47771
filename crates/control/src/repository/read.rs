//! Reading books and their history.

use tidegate_core::time::Timestamp;

use super::Refused;
use super::database::{Database, Session, Value, stored, told};
use crate::book::{Book, Kept, Kind};
use crate::edit::{Change, Signed};

/// The latest version.
pub(super) async fn head(database: &Database) -> Result<u64, Refused> {
    head_of(&mut database.reader().await?).await
}

/// The latest version, as a session sees it.
pub(super) async fn head_of(session: &mut Session) -> Result<u64, Refused> {
    let sql = "SELECT coalesce(max(number), 0) FROM rule_version";
    let rows: Vec<(i64,)> = session.rows(sql, &[]).await?;
    Ok(rows.first().map_or(0, |(number,)| told(*number)))
}

/// The whole book.
pub(super) async fn book(database: &Database) -> Result<Book, Refused> {
    let mut session = database.reader().await?;
    let rows: Vec<(String, String, String, i64)> =
        session.rows(include_str!("../../sql/book.sql"), &[]).await?;
    let (mut head, mut entries) = (0, Vec::with_capacity(rows.len()));
    for (kind, id, value, version) in rows {
        let version = told(version);
        match kind.as_str() {
            "head" => head = version,
            kind => entries.push((kind_of(kind)?, id, Kept { value, version })),
        }
    }
    Ok(Book::new(head, entries))
}

/// What versions changed.
pub(super) async fn changes(
    database: &Database,
    since: u64,
    until: u64,
) -> Result<Vec<Change>, Refused> {
    type Row = (i64, String, String, Option<String>, Option<String>);
    let between = [Value::Number(stored(since)), Value::Number(stored(until))];
    let mut session = database.reader().await?;
    let rows: Vec<Row> = session.rows(include_str!("../../sql/changes.sql"), &between).await?;
    let change = |(version, kind, id, before, after): Row| {
        Ok(Change { version: told(version), kind: kind_of(&kind)?, id, before, after })
    };
    rows.into_iter().map(change).collect()
}

/// Who made versions.
pub(super) async fn history(
    database: &Database,
    before: u64,
    most: u32,
) -> Result<Vec<Signed>, Refused> {
    type Row = (i64, String, String, i64, i64);
    let page = [Value::Number(stored(before)), Value::Number(most.into())];
    let mut session = database.reader().await?;
    let rows: Vec<Row> = session.rows(include_str!("../../sql/history.sql"), &page).await?;
    let signed = |(version, author, reason, at, changes): Row| Signed {
        version: told(version),
        author,
        reason,
        at: Timestamp::from_micros(told(at)),
        changes: told(changes),
    };
    Ok(rows.into_iter().map(signed).collect())
}

fn kind_of(name: &str) -> Result<Kind, Refused> {
    let foreign = || Refused::Foreign(format!("it holds entries of an unknown kind, `{name}`"));
    Kind::of(name).ok_or_else(foreign)
}
