//! The schema: is this database one of ours, is it of our time, and what is to be applied to it.
//!
//! Nothing is touched in a database that is not ours. Where the schema is as it should be nothing
//! is written, so that a program without the right to change it can start.

use sqlx::migrate::{Migrate, Migrator};

use super::Refused;
use super::refusal::migration;

/// Where applied migrations are on record: a name of our own, because the default one may be that
/// of another program in the same database.
const RECORD: &str = "tidegate_migration";

/// What SQLite is brought to.
pub(super) fn sqlite() -> Migrator {
    named(sqlx::migrate!("migrations/sqlite"))
}

/// What PostgreSQL is brought to.
pub(super) fn postgres() -> Migrator {
    named(sqlx::migrate!("migrations/postgres"))
}

fn named(mut migrator: Migrator) -> Migrator {
    // Dangerous is only to change it later.
    migrator.dangerous_set_table_name(RECORD);
    migrator
}

/// Applies what is missing, and tells what that was. `tables` are all that the database has.
pub(super) async fn bring<C: Migrate>(
    connection: &mut C,
    migrator: &Migrator,
    tables: &[String],
) -> Result<Vec<String>, Refused> {
    let ours = tables.iter().any(|table| table == RECORD);
    if let (false, Some(table)) = (ours, tables.first()) {
        let why = format!(
            "it has tables of somebody else, such as {table}; name a database (or, in PostgreSQL, \
             a schema: `?options[search_path]=tidegate`) that is empty or was made by tidegate"
        );
        return Err(Refused::Foreign(why));
    }
    let mut missing = Vec::new();
    let applied = match ours {
        true => connection.list_applied_migrations(RECORD).await.map_err(migration)?,
        false => Vec::new(),
    };
    if let Some(newer) = applied.iter().find(|done| !migrator.version_exists(done.version)) {
        let (version, known) = (newer.version, migrator.iter().map(|known| known.version).max());
        let why = format!(
            "its schema is at {version} and this program knows up to {}: start a newer tidegate",
            known.unwrap_or(0)
        );
        return Err(Refused::Foreign(why));
    }
    for known in migrator.iter() {
        match applied.iter().find(|done| done.version == known.version) {
            Some(done) if done.checksum != known.checksum => {
                let why = format!("migration {} there is another than ours", known.version);
                return Err(Refused::Foreign(why));
            }
            Some(_) => {}
            None => missing.push(format!("{:04} {}", known.version, known.description)),
        }
    }
    if !missing.is_empty() {
        migrator.run_direct(None, connection, false).await.map_err(migration)?;
    }
    Ok(missing)
}
