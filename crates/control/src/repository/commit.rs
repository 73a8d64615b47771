//! Making a version: one transaction that takes the next number, changes the entries and keeps the
//! audit.
//!
//! The number comes first. Who takes it makes everybody else wait (or find it taken), so what is
//! read after that stays true until the end.

use std::collections::{HashMap, HashSet};

use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

use super::Refused;
use super::columns::{Table, derived, table};
use super::database::{Database, Session, Value, stored};
use super::listen::CHANNEL;
use super::read::head_of;
use super::sheet::Sheets;
use crate::book::Kind;
use crate::edit::{Edit, Entry};

/// The longest id: more than this and some more an index cannot hold.
const LONGEST_ID: usize = 512;

/// What an entry said until now.
struct Before {
    value: String,
    created_at: i64,
}

/// An entry that is to say something else.
struct Changed<'a> {
    entry: &'a Entry,
    before: Option<Before>,
}

/// Makes the version after `on`; tells the latest.
pub(super) async fn commit(database: &Database, on: u64, edit: &Edit) -> Result<u64, Refused> {
    check(edit)?;
    let version = on.saturating_add(1);
    let mut session = database.transaction().await?;
    if !sign(&mut session, version, edit).await? {
        let head = head_of(&mut session).await?;
        session.forget().await?;
        return Err(Refused::Outdated { head });
    }
    let changed = changed(&mut session, edit).await?;
    if changed.is_empty() {
        session.forget().await?;
        return Ok(on);
    }
    for kind in Kind::ALL {
        replace(&mut session, kind, &changed, (version, edit)).await?;
    }
    audit(&mut session, version, &changed).await?;
    if session.is_heard() {
        let told = [Value::Text(CHANNEL), Value::Text(&version.to_string())];
        session.run("SELECT pg_notify($1, $2)", &told).await?;
    }
    session.commit().await.map_err(|refused| unsure(version, refused))?;
    Ok(version)
}

/// Refuses what could not be kept as it is.
fn check(edit: &Edit) -> Result<(), Refused> {
    let mut seen = HashSet::new();
    for (what, text) in [("author", &edit.author), ("reason", &edit.reason)] {
        if text.contains('\0') {
            return Err(Refused::Unfit(format!("the {what} contains {NUL}")));
        }
    }
    for entry in &edit.entries {
        let fault = match seen.insert((entry.kind, &entry.id)) {
            true => fault(entry),
            false => Some("is changed twice: say only how it is to be".to_owned()),
        };
        if let Some(fault) = fault {
            let (kind, id) = (entry.kind.name(), entry.id.chars().take(100).collect::<String>());
            return Err(Refused::Unfit(format!("the {kind} {id:?} {fault}")));
        }
    }
    Ok(())
}

const NUL: &str = "a NUL character, which cannot be kept: leave it out";

/// What is wrong with an entry, if anything is.
fn fault(Entry { id, value, .. }: &Entry) -> Option<String> {
    let value = value.as_deref().unwrap_or("null");
    if id.len() > LONGEST_ID {
        let bytes = id.len();
        return Some(format!("has an id of {bytes} bytes: at most {LONGEST_ID} are kept"));
    }
    if id.contains('\0') || value.contains('\0') {
        return Some(format!("contains {NUL}"));
    }
    let error = serde_json::from_str::<IgnoredAny>(value).err()?;
    Some(format!("is no JSON: {error}"))
}

/// Takes the number, if it is the next.
async fn sign(session: &mut Session, version: u64, edit: &Edit) -> Result<bool, Refused> {
    let values = [
        Value::Number(stored(version)),
        Value::Text(&edit.author),
        Value::Text(&edit.reason),
        Value::Number(stored(edit.at.as_micros())),
    ];
    Ok(session.run(include_str!("../../sql/sign.sql"), &values).await? == 1)
}

/// Those entries that do not say yet what they are to say.
async fn changed<'a>(session: &mut Session, edit: &'a Edit) -> Result<Vec<Changed<'a>>, Refused> {
    let mut there = HashMap::new();
    for kind in Kind::ALL {
        let Table { name, id, value, .. } = table(kind);
        let what = format!("{id}, {value}, created_at FROM {name}");
        let sql =
            session.over(&format!("SELECT {what} WHERE {id} IN (SELECT e->>0 FROM {{rows}})"));
        let ids = edit.entries.iter().filter(|entry| entry.kind == kind).map(|entry| [&entry.id]);
        for sheet in Sheets::of(ids) {
            let rows: Vec<(String, String, i64)> =
                session.rows(sql.clone(), &[Value::Text(&sheet?)]).await?;
            there.extend(
                rows.into_iter()
                    .map(|(id, value, created_at)| ((kind, id), Before { value, created_at })),
            );
        }
    }
    let changed = edit.entries.iter().filter_map(|entry| {
        let before = there.remove(&(entry.kind, entry.id.clone()));
        let same = before.as_ref().map(|before| &before.value) == entry.value.as_ref();
        (!same).then_some(Changed { entry, before })
    });
    Ok(changed.collect())
}

/// Takes the old rows of a kind away and puts the new ones there: in this order, so that two rules
/// may change places where a pattern is there once.
async fn replace(
    session: &mut Session,
    kind: Kind,
    changed: &[Changed<'_>],
    (version, edit): (u64, &Edit),
) -> Result<(), Refused> {
    let of_kind = || changed.iter().filter(|changed| changed.entry.kind == kind);
    let Table { name, id, value, columns } = table(kind);
    let sql =
        session.over(&format!("DELETE FROM {name} WHERE {id} IN (SELECT e->>0 FROM {{rows}})"));
    let old = of_kind().filter(|changed| changed.before.is_some());
    for sheet in Sheets::of(old.map(|changed| [&changed.entry.id])) {
        session.run(sql.clone(), &[Value::Text(&sheet?)]).await?;
    }
    let columns =
        [(*id, "text"), (*value, "text"), ("version", "bigint"), ("created_at", "bigint")]
            .into_iter()
            .chain(columns.iter().copied());
    let (names, casts): (Vec<&str>, Vec<String>) = columns
        .enumerate()
        .map(|(at, (column, of))| (column, format!("CAST(e->>{at} AS {of})")))
        .unzip();
    let (names, casts) = (names.join(", "), casts.join(", "));
    let sql = session.over(&format!("INSERT INTO {name} ({names}) SELECT {casts} FROM {{rows}}"));
    for sheet in Sheets::of(of_kind().filter_map(|changed| row(changed, version, edit))) {
        session.run(sql.clone(), &[Value::Text(&sheet?)]).await?;
    }
    Ok(())
}

fn row(changed: &Changed<'_>, version: u64, edit: &Edit) -> Option<Vec<Json>> {
    let Entry { kind, id, value } = changed.entry;
    let value = value.as_ref()?;
    let created_at = match &changed.before {
        Some(before) => before.created_at,
        None => stored(edit.at.as_micros()),
    };
    let mut row = vec![json!(id), json!(value), json!(version), json!(created_at)];
    row.extend(derived(*kind, id, value));
    Some(row)
}

async fn audit(
    session: &mut Session,
    version: u64,
    changed: &[Changed<'_>],
) -> Result<(), Refused> {
    let rows = changed.iter().enumerate().map(|(at, changed)| {
        let Entry { kind, id, value } = changed.entry;
        let before = changed.before.as_ref().map(|before| &before.value);
        (version, at + 1, kind.name(), id, before, value)
    });
    let sql = session.over(include_str!("../../sql/audit.sql"));
    for sheet in Sheets::of(rows) {
        session.run(sql.clone(), &[Value::Text(&sheet?)]).await?;
    }
    Ok(())
}

/// When the connection breaks while it is being ended, nobody knows how a transaction ended.
fn unsure(version: u64, refused: Refused) -> Refused {
    match refused {
        Refused::Gone(why) => Refused::Gone(format!(
            "{why} (whether version {version} was made is not known: look at the history before \
             trying again)"
        )),
        other => other,
    }
}
