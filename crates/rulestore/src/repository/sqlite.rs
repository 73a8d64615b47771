//! SQLite, the database of a single node: opening, migrating and closing the file. Statements are
//! in `database`.
//!
//! Uses `synchronous = FULL`. With a write-ahead log, `NORMAL` never leaves half a transaction
//! either, but a power cut may lose the last ones. A version that others have acted on would
//! vanish, and its number would be reused for a different configuration.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::time::{Instant, sleep};

use super::database::SqlDatabase;
use super::error::{from_sqlx, is_locked, unavailable};
use super::{RepositoryError, schema};
use crate::file;

/// How long to wait for a lock held by another connection.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before retrying an operation that SQLite itself does not wait for.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

const MAX_READERS: u32 = 3;

/// Connects to the file and creates it if needed, with mode 0600: it contains customer data.
async fn connect(path: &Path) -> Result<SqliteConnection, RepositoryError> {
    match file::check_replaceable(path) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(RepositoryError::Incompatible(error.to_string()));
        }
        // Other problems show up when the file is opened.
        _ => {}
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unavailable(&format!("the file cannot be created: {error}"))),
    }
    options(path).connect().await.map_err(from_sqlx)
}

fn options(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(LOCK_TIMEOUT);
    options.synchronous(SqliteSynchronous::Full)
}

/// Opens a file that other programs write. It is neither created nor changed, and its schema is not
/// checked.
pub(super) fn open_read_only(path: &Path) -> Result<SqlDatabase, RepositoryError> {
    if !path.exists() {
        return Err(unavailable("there is no such file"));
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(LOCK_TIMEOUT);
    let readers = pool.connect_lazy_with(options.busy_timeout(LOCK_TIMEOUT));
    Ok(SqlDatabase::Sqlite { writer: readers.clone(), readers })
}

/// Applies missing migrations and returns their names.
pub(super) async fn migrate(path: &Path) -> Result<Vec<String>, RepositoryError> {
    let mut connection = connect(path).await?;
    // Concurrent migrations wait here and then find nothing left to do.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(from_sqlx)?;
    let tables = include_str!("../../sql/tables.sqlite.sql");
    let tables: Vec<String> =
        sqlx::query_scalar(tables).fetch_all(&mut *transaction).await.map_err(from_sqlx)?;
    let applied =
        schema::apply_missing(&mut *transaction, &schema::sqlite_migrator(), &tables).await?;
    transaction.commit().await.map_err(from_sqlx)?;
    enable_wal(&mut connection).await?;
    connection.close().await.map_err(from_sqlx)?;
    Ok(applied)
}

/// Enables the write-ahead log, so that readers and the writer do not block each other. The setting
/// is persistent, so it is only made once the file is known to be ours.
async fn enable_wal(connection: &mut SqliteConnection) -> Result<(), RepositoryError> {
    let mode = set_wal_mode(connection).await.map_err(from_sqlx)?;
    match mode.as_str() {
        "wal" => Ok(()),
        // Some network file systems do not support WAL.
        other => Err(unavailable(&format!(
            "its journal mode stays {other} instead of WAL; move the file to a local disk"
        ))),
    }
}

/// Retries because SQLite ignores the busy timeout here: two connections that switch modes at once
/// would deadlock.
async fn set_wal_mode(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        let set_mode = sqlx::query_scalar("PRAGMA journal_mode = WAL");
        match set_mode.fetch_one(&mut *connection).await {
            Err(error) if is_locked(&error) && Instant::now() < deadline => {
                sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Migrates the schema and opens the pools.
pub(super) async fn open(path: &Path) -> Result<SqlDatabase, RepositoryError> {
    migrate(path).await?;
    let pool = |max_connections| {
        let pool =
            SqlitePoolOptions::new().max_connections(max_connections).acquire_timeout(LOCK_TIMEOUT);
        pool.connect_lazy_with(options(path))
    };
    Ok(SqlDatabase::Sqlite { readers: pool(MAX_READERS), writer: pool(1) })
}

/// Moves the write-ahead log into the file and closes it, so that a copy of the one file is a
/// backup. If another process has the file open, the log remains with that process.
pub(super) async fn close(database: &SqlDatabase) -> Result<(), RepositoryError> {
    let SqlDatabase::Sqlite { readers, writer } = database else { return Ok(()) };
    readers.close().await;
    let mut session = database.writer().await?;
    let checkpoint = session.execute("PRAGMA wal_checkpoint(TRUNCATE)", &[]).await;
    drop(session);
    writer.close().await;
    checkpoint.map(|_| ())
}
