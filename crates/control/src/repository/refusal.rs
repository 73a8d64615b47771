//! What a database says, as a [`Refused`]: what a person can do about it, and no secret.

use sqlx::Error;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use super::Refused;

/// Classes of SQLite's errors: another process, or another connection of this one.
const BUSY: u32 = 5;
const LOCKED: u32 = 6;

/// A database's error.
pub(super) fn refused(error: Error) -> Refused {
    match error {
        Error::Database(error) => by_code(error.as_ref()),
        Error::PoolTimedOut => {
            gone("no connection to be had in time; is it running, and is it reachable from here?")
        }
        Error::Io(error) => gone(&error.to_string()),
        Error::Decode(_) | Error::ColumnDecode { .. } | Error::ColumnNotFound(_) => {
            Refused::Foreign(format!("it holds what we did not write: {error}"))
        }
        Error::Migrate(error) => migration(*error),
        other => gone(&other.to_string()),
    }
}

/// An error while the schema was brought up to date.
pub(super) fn migration(error: MigrateError) -> Refused {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => refused(error),
        other => Refused::Foreign(other.to_string()),
    }
}

/// Whether another keeps a file of SQLite locked.
pub(super) fn is_locked(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse().ok());
    code.is_some_and(|code: u32| matches!(code & 0xFF, BUSY | LOCKED))
}

/// A statement that was not answered in time.
pub(super) fn late(_: tokio::time::error::Elapsed) -> Refused {
    gone("no answer in time; is it overloaded, or is the network between us broken?")
}

/// SQLSTATE codes have five characters, those of SQLite are numbers whose lowest byte is the class.
fn by_code(error: &dyn DatabaseError) -> Refused {
    let (code, message) = (error.code().unwrap_or_default(), error.message());
    if error.is_unique_violation() {
        let why = "two rules have the same key_pattern for the same plan, algorithm and window: \
                   make one rule of them, or give one another plan or window";
        return Refused::Unfit(why.to_owned());
    }
    match (code.len(), code.as_ref()) {
        (5, "57014") => gone("a statement took too long and was ended; is it overloaded?"),
        (5, "42P01" | "42703") => Refused::Foreign(message.to_owned()),
        (5, "42501") => gone(&format!(
            "{message}; give our user that right, or let another run `tidegate db migrate`"
        )),
        (5, _) => gone(message),
        _ => sqlite(code.parse().unwrap_or(0), message),
    }
}

fn sqlite(code: u32, message: &str) -> Refused {
    match code & 0xFF {
        BUSY | LOCKED => gone("another process keeps it locked"),
        8 => gone("we may not write to the file"),
        11 | 26 => Refused::Foreign(message.to_owned()),
        13 => gone("its disk is full"),
        14 => gone("the file cannot be opened; does its folder exist, and may we write there?"),
        1 if message.starts_with("no such") => Refused::Foreign(message.to_owned()),
        _ => gone(message),
    }
}

pub(super) fn gone(why: &str) -> Refused {
    Refused::Gone(why.to_owned())
}
