//! Sessions, statements and timeouts for either database. Knows nothing about tables.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments, AssertSqlSafe, Encode, FromRow, PgPool, Postgres, SqlSafeStr, SqlStr, Sqlite,
    SqlitePool, Type,
};

use super::RepositoryError;
use super::error::{from_elapsed, from_sqlx};

/// Client-side timeout of a statement. A reachable server ends the statement earlier
/// (`statement_timeout`); this covers an unreachable one.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A database and its connection pools.
#[derive(Debug)]
pub(super) enum SqlDatabase {
    /// A single writer connection: SQLite allows only one writer, and waiting for the pool avoids
    /// polling for its lock.
    Sqlite {
        readers: SqlitePool,
        writer: SqlitePool,
    },
    Postgres(PgPool),
}

/// A pooled connection. If it is dropped with an unfinished statement or transaction, it is closed
/// instead of returned to the pool, so callers may be cancelled at any time.
pub(super) struct SqlSession {
    connection: SqlConnection,
    state: State,
}

enum SqlConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Inside a transaction.
    Open,
    /// A statement is running, or was abandoned.
    Busy,
}

/// A statement parameter.
#[derive(Clone, Copy)]
pub(super) enum SqlParam<'a> {
    Number(i64),
    Text(&'a str),
}

/// A row type that both databases can produce.
pub(super) trait SqlRow:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> SqlRow for T where
    T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl SqlDatabase {
    /// Closes all connections.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { readers, writer } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }

    /// A session for read-only statements.
    pub(super) async fn reader(&self) -> Result<SqlSession, RepositoryError> {
        let connection = match self {
            Self::Sqlite { readers, .. } => {
                SqlConnection::Sqlite(readers.acquire().await.map_err(from_sqlx)?)
            }
            Self::Postgres(pool) => {
                SqlConnection::Postgres(pool.acquire().await.map_err(from_sqlx)?)
            }
        };
        Ok(SqlSession { connection, state: State::Idle })
    }

    /// A session for individual write statements.
    pub(super) async fn writer(&self) -> Result<SqlSession, RepositoryError> {
        match self {
            Self::Sqlite { writer, .. } => {
                let connection = SqlConnection::Sqlite(writer.acquire().await.map_err(from_sqlx)?);
                Ok(SqlSession { connection, state: State::Idle })
            }
            Self::Postgres(_) => self.reader().await,
        }
    }

    /// A session in a write transaction.
    pub(super) async fn begin_transaction(&self) -> Result<SqlSession, RepositoryError> {
        let mut session = self.writer().await?;
        // Without `IMMEDIATE`, a transaction that has already read cannot wait for the write lock.
        let begin = match session.connection {
            SqlConnection::Sqlite(_) => "BEGIN IMMEDIATE",
            SqlConnection::Postgres(_) => "BEGIN",
        };
        session.execute(begin, &[]).await?;
        session.state = State::Open;
        Ok(session)
    }
}

impl SqlSession {
    /// Whether the session is on PostgreSQL, which supports notifications.
    pub(super) const fn is_postgres(&self) -> bool {
        matches!(self.connection, SqlConnection::Postgres(_))
    }

    /// Runs a query and returns its rows.
    pub(super) async fn fetch_rows<T: SqlRow>(
        &mut self,
        sql: impl SqlSafeStr,
        values: &[SqlParam<'_>],
    ) -> Result<Vec<T>, RepositoryError> {
        let (sql, state) = (sql.into_sql_str(), self.mark_busy());
        let rows = match &mut self.connection {
            SqlConnection::Sqlite(connection) => {
                let query = sqlx::query_as_with(sql, bind_params::<SqliteArguments>(values)?);
                with_timeout(query.fetch_all(&mut **connection)).await?
            }
            SqlConnection::Postgres(connection) => {
                let query = sqlx::query_as_with(sql, bind_params::<PgArguments>(values)?);
                with_timeout(query.fetch_all(&mut **connection)).await?
            }
        };
        self.state = state;
        Ok(rows)
    }

    /// Runs a statement and returns the number of rows it changed.
    pub(super) async fn execute(
        &mut self,
        sql: impl SqlSafeStr,
        values: &[SqlParam<'_>],
    ) -> Result<u64, RepositoryError> {
        let (sql, state) = (sql.into_sql_str(), self.mark_busy());
        let changed = match &mut self.connection {
            SqlConnection::Sqlite(connection) => {
                let query = sqlx::query_with(sql, bind_params::<SqliteArguments>(values)?);
                with_timeout(query.execute(&mut **connection)).await?.rows_affected()
            }
            SqlConnection::Postgres(connection) => {
                let query = sqlx::query_with(sql, bind_params::<PgArguments>(values)?);
                with_timeout(query.execute(&mut **connection)).await?.rows_affected()
            }
        };
        self.state = state;
        Ok(changed)
    }

    /// Marks the session busy; returns the state to restore when the statement completes.
    const fn mark_busy(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Busy)
    }

    /// Replaces `{rows}` in a statement by the rows of its first parameter, a JSON chunk. Each row
    /// is called `e`; `e->>0` is its first value.
    pub(super) fn expand_rows(&self, sql: &str) -> SqlStr {
        let rows = match self.connection {
            SqlConnection::Sqlite(_) => "(SELECT value AS e FROM json_each($1)) AS chunk",
            SqlConnection::Postgres(_) => "json_array_elements(CAST($1 AS json)) AS chunk (e)",
        };
        // Safe: only constant text is inserted into constant text.
        AssertSqlSafe(sql.replace("{rows}", rows)).into_sql_str()
    }

    /// Commits the transaction.
    pub(super) async fn commit(mut self) -> Result<(), RepositoryError> {
        self.end_transaction("COMMIT").await
    }

    /// Rolls the transaction back.
    pub(super) async fn rollback(mut self) -> Result<(), RepositoryError> {
        self.end_transaction("ROLLBACK").await
    }

    async fn end_transaction(&mut self, statement: &'static str) -> Result<(), RepositoryError> {
        self.execute(statement, &[]).await?;
        self.state = State::Idle;
        Ok(())
    }
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        if self.state != State::Idle {
            match &mut self.connection {
                SqlConnection::Sqlite(connection) => connection.close_on_drop(),
                SqlConnection::Postgres(connection) => connection.close_on_drop(),
            }
        }
    }
}

async fn with_timeout<T>(
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, RepositoryError> {
    tokio::time::timeout(STATEMENT_TIMEOUT, answer).await.map_err(from_elapsed)?.map_err(from_sqlx)
}

fn bind_params<'q, A>(values: &[SqlParam<'q>]) -> Result<A, RepositoryError>
where
    A: Arguments,
    i64: Encode<'q, A::Database> + Type<A::Database>,
    &'q str: Encode<'q, A::Database> + Type<A::Database>,
{
    let mut arguments = A::default();
    for value in values {
        let added = match value {
            SqlParam::Number(number) => arguments.add(*number),
            SqlParam::Text(text) => arguments.add(*text),
        };
        added.map_err(|error| from_sqlx(sqlx::Error::Encode(error)))?;
    }
    Ok(arguments)
}

/// Converts a number for storage, saturating at the largest value that fits.
pub(super) fn to_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a stored number back.
pub(super) fn from_stored(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
