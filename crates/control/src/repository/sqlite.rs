//! SQLite: one file of one node, and how it is opened. Asking it is in `database`.
//!
//! `synchronous = FULL`: with a write-ahead log `NORMAL` never leaves half a transaction either, but
//! after a power cut it may lose the last ones. A version that others have acted on would be gone, and
//! its number would be given to another book.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::time::{Instant, sleep};

use super::database::Database;
use super::refusal::{gone, is_locked, refused};
use super::{Refused, schema};
use crate::file;

/// How long others may keep it locked.
const LOCKED: Duration = Duration::from_secs(5);

/// How long to wait before something that SQLite does not wait for is tried again.
const AGAIN: Duration = Duration::from_millis(5);

const READERS: u32 = 3;

/// A connection, to a file that is made if need be: it says whom limits are for, so it is for
/// nobody else's eyes.
async fn connect(path: &Path) -> Result<SqliteConnection, Refused> {
    match file::check_replaceable(path) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(Refused::Foreign(error.to_string()));
        }
        // What else is wrong is seen when it is opened.
        _ => {}
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(gone(&format!("the file cannot be made: {error}"))),
    }
    options(path).connect().await.map_err(refused)
}

fn options(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(LOCKED);
    options.synchronous(SqliteSynchronous::Full)
}

/// A file that others write: it is not made, not changed, and its schema is not looked at.
pub(super) fn read_only(path: &Path) -> Result<Database, Refused> {
    if !path.exists() {
        return Err(gone("there is no such file"));
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(LOCKED);
    let readers = pool.connect_lazy_with(options.busy_timeout(LOCKED));
    Ok(Database::Sqlite { writer: readers.clone(), readers })
}

/// Applies what is missing, and tells what that was.
pub(super) async fn migrate(path: &Path) -> Result<Vec<String>, Refused> {
    let mut connection = connect(path).await?;
    // Whoever comes at the same time waits here, and finds everything done.
    let mut turn = connection.begin_with("BEGIN IMMEDIATE").await.map_err(refused)?;
    let tables = include_str!("../../sql/tables.sqlite.sql");
    let tables: Vec<String> =
        sqlx::query_scalar(tables).fetch_all(&mut *turn).await.map_err(refused)?;
    let applied = schema::bring(&mut *turn, &schema::sqlite(), &tables).await?;
    turn.commit().await.map_err(refused)?;
    write_ahead(&mut connection).await?;
    connection.close().await.map_err(refused)?;
    Ok(applied)
}

/// Turns the write-ahead log on, so that readers and the writer do not wait for each other. It stays
/// on, and it is only done once the file is known to be ours.
async fn write_ahead(connection: &mut SqliteConnection) -> Result<(), Refused> {
    let mode = switch(connection).await.map_err(refused)?;
    match mode.as_str() {
        "wal" => Ok(()),
        // Some file systems of networks cannot have one.
        other => Err(gone(&format!("its journal stays in mode {other}; keep it on a local disk"))),
    }
}

/// SQLite does not wait for others here, however long it was told to: two who switch at the same time
/// would wait for each other. So it is tried again.
async fn switch(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    let until = Instant::now() + LOCKED;
    loop {
        let turn_on = sqlx::query_scalar("PRAGMA journal_mode = WAL");
        match turn_on.fetch_one(&mut *connection).await {
            Err(error) if is_locked(&error) && Instant::now() < until => sleep(AGAIN).await,
            told => return told,
        }
    }
}

/// Opens it, its schema as it should be.
pub(super) async fn open(path: &Path) -> Result<Database, Refused> {
    migrate(path).await?;
    let pool = |most| {
        let pool = SqlitePoolOptions::new().max_connections(most).acquire_timeout(LOCKED);
        pool.connect_lazy_with(options(path))
    };
    Ok(Database::Sqlite { readers: pool(READERS), writer: pool(1) })
}

/// Moves what is in the write-ahead log into the file and closes it, so that a copy of the one file is
/// a backup. While another process has it open, that one keeps the log.
pub(super) async fn close(database: &Database) -> Result<(), Refused> {
    let Database::Sqlite { readers, writer } = database else { return Ok(()) };
    readers.close().await;
    let mut session = database.writer().await?;
    let moved = session.run("PRAGMA wal_checkpoint(TRUNCATE)", &[]).await;
    drop(session);
    writer.close().await;
    moved.map(|_| ())
}
