//! Schema migration: checks that the database belongs to Tidegate and is not too new, and applies
//! missing migrations.
//!
//! A foreign database is never touched. An up-to-date schema is not written to, so a user without
//! the right to change it can start the program.

use sqlx::migrate::{Migrate, Migrator};

use super::RepositoryError;
use super::error::from_migration;

/// Table of applied migrations. Not the default name, which another program in the same database
/// may use.
const MIGRATION_TABLE: &str = "tidegate_migration";

/// The migrations for SQLite.
pub(super) fn sqlite_migrator() -> Migrator {
    with_migration_table(sqlx::migrate!("migrations/sqlite"))
}

/// The migrations for PostgreSQL.
pub(super) fn postgres_migrator() -> Migrator {
    with_migration_table(sqlx::migrate!("migrations/postgres"))
}

fn with_migration_table(mut migrator: Migrator) -> Migrator {
    // Only dangerous when the name changes later.
    migrator.dangerous_set_table_name(MIGRATION_TABLE);
    migrator
}

/// Applies missing migrations and returns their names. `tables` lists all tables of the database.
pub(super) async fn apply_missing<C: Migrate>(
    connection: &mut C,
    migrator: &Migrator,
    tables: &[String],
) -> Result<Vec<String>, RepositoryError> {
    let is_ours = tables.iter().any(|table| table == MIGRATION_TABLE);
    if let (false, Some(table)) = (is_ours, tables.first()) {
        let why = format!(
            "it has tables of another program, such as {table}; use a database (or, in \
             PostgreSQL, a schema: `?options[search_path]=tidegate`) that is empty or was created \
             by tidegate"
        );
        return Err(RepositoryError::Incompatible(why));
    }
    let mut missing = Vec::new();
    let applied = match is_ours {
        true => {
            connection.list_applied_migrations(MIGRATION_TABLE).await.map_err(from_migration)?
        }
        false => Vec::new(),
    };
    if let Some(newer) = applied.iter().find(|done| !migrator.version_exists(done.version)) {
        let (version, known) = (newer.version, migrator.iter().map(|known| known.version).max());
        let why = format!(
            "its schema version is {version}, but this program only knows up to {}; start a newer \
             tidegate",
            known.unwrap_or(0)
        );
        return Err(RepositoryError::Incompatible(why));
    }
    for known in migrator.iter() {
        match applied.iter().find(|done| done.version == known.version) {
            Some(done) if done.checksum != known.checksum => {
                let why = format!(
                    "migration {} in the database differs from this program's",
                    known.version
                );
                return Err(RepositoryError::Incompatible(why));
            }
            Some(_) => {}
            None => missing.push(format!("{:04} {}", known.version, known.description)),
        }
    }
    if !missing.is_empty() {
        migrator.run_direct(None, connection, false).await.map_err(from_migration)?;
    }
    Ok(missing)
}
