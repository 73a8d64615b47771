//! Converts database errors to [`RepositoryError`]s that say what an operator can do, without
//! secrets.

use sqlx::Error;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use super::RepositoryError;

/// SQLite error classes for a lock held by another process, or by another connection of this one.
const BUSY: u32 = 5;
const LOCKED: u32 = 6;

/// Converts an error of the database driver.
pub(super) fn from_sqlx(error: Error) -> RepositoryError {
    match error {
        Error::Database(error) => from_code(error.as_ref()),
        Error::PoolTimedOut => unavailable(
            "no connection available in time; check that it is running and reachable from here",
        ),
        Error::Io(error) => unavailable(&error.to_string()),
        Error::Decode(_) | Error::ColumnDecode { .. } | Error::ColumnNotFound(_) => {
            RepositoryError::Incompatible(format!(
                "it contains data that Tidegate did not write: {error}"
            ))
        }
        Error::Migrate(error) => from_migration(*error),
        other => unavailable(&other.to_string()),
    }
}

/// Converts an error of a schema migration.
pub(super) fn from_migration(error: MigrateError) -> RepositoryError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => from_sqlx(error),
        other => RepositoryError::Incompatible(other.to_string()),
    }
}

/// Whether the error means that the SQLite file is locked.
pub(super) fn is_locked(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse().ok());
    code.is_some_and(|code: u32| matches!(code & 0xFF, BUSY | LOCKED))
}

/// Converts the timeout of a statement.
pub(super) fn from_elapsed(_: tokio::time::error::Elapsed) -> RepositoryError {
    unavailable("no answer in time; check its load and the network connection")
}

/// Classifies an error by its code. SQLSTATE codes have five characters; SQLite codes are numbers
/// whose lowest byte is the class.
fn from_code(error: &dyn DatabaseError) -> RepositoryError {
    let (code, message) = (error.code().unwrap_or_default(), error.message());
    if error.is_unique_violation() {
        let why = "two rules have the same key_pattern, plan, algorithm and window; merge them, or \
                   change the plan or window of one";
        return RepositoryError::Invalid(why.to_owned());
    }
    match (code.len(), code.as_ref()) {
        (5, "57014") => unavailable("a statement exceeded statement_timeout; check its load"),
        (5, "42P01" | "42703") => RepositoryError::Incompatible(message.to_owned()),
        (5, "42501") => unavailable(&format!(
            "{message}; grant that right, or run `tidegate db migrate` as another user"
        )),
        (5, _) => unavailable(message),
        _ => from_sqlite_code(code.parse().unwrap_or(0), message),
    }
}

fn from_sqlite_code(code: u32, message: &str) -> RepositoryError {
    match code & 0xFF {
        BUSY | LOCKED => unavailable("another process holds its lock"),
        8 => unavailable("the file is not writable"),
        11 | 26 => RepositoryError::Incompatible(message.to_owned()),
        13 => unavailable("the disk is full"),
        14 => unavailable(
            "the file cannot be opened; check that its directory exists and is writable",
        ),
        1 if message.starts_with("no such") => RepositoryError::Incompatible(message.to_owned()),
        _ => unavailable(message),
    }
}

pub(super) fn unavailable(why: &str) -> RepositoryError {
    RepositoryError::Unavailable(why.to_owned())
}
