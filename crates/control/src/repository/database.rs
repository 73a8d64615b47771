//! Asking a database, whichever of the two it is: sessions, statements and their time limits. Knows
//! no table.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments, AssertSqlSafe, Encode, FromRow, PgPool, Postgres, SqlSafeStr, SqlStr, Sqlite,
    SqlitePool, Type,
};

use super::Refused;
use super::refusal::{late, refused};

/// How long one statement may take before we give up on it. A server that is there ends it earlier
/// by itself (`statement_timeout`); this is for one that is not.
const PATIENCE: Duration = Duration::from_secs(10);

/// A database and its connections.
#[derive(Debug)]
pub(super) enum Database {
    /// One writer at a time: SQLite has no more, and who waits here need not poll for its lock.
    Sqlite {
        readers: SqlitePool,
        writer: SqlitePool,
    },
    Postgres(PgPool),
}

/// A connection for a while. Unless everything that was begun on it is ended, it is closed rather
/// than used again: so a caller may go away at any time.
pub(super) struct Session {
    link: Link,
    state: State,
}

enum Link {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// In a transaction.
    Open,
    /// A statement is under way, or was left so.
    Busy,
}

/// A parameter.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Number(i64),
    Text(&'a str),
}

/// A row of either database.
pub(super) trait Row:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{}

impl Database {
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

    /// A session for statements that only read.
    pub(super) async fn reader(&self) -> Result<Session, Refused> {
        let link = match self {
            Self::Sqlite { readers, .. } => Link::Sqlite(readers.acquire().await.map_err(refused)?),
            Self::Postgres(pool) => Link::Postgres(pool.acquire().await.map_err(refused)?),
        };
        Ok(Session { link, state: State::Idle })
    }

    /// A session for statements that write, each by itself.
    pub(super) async fn writer(&self) -> Result<Session, Refused> {
        match self {
            Self::Sqlite { writer, .. } => {
                let link = Link::Sqlite(writer.acquire().await.map_err(refused)?);
                Ok(Session { link, state: State::Idle })
            }
            Self::Postgres(_) => self.reader().await,
        }
    }

    /// A session in a transaction that writes.
    pub(super) async fn transaction(&self) -> Result<Session, Refused> {
        let mut session = self.writer().await?;
        // Without `IMMEDIATE` a transaction that has read cannot wait for its turn to write.
        let begin = match session.link {
            Link::Sqlite(_) => "BEGIN IMMEDIATE",
            Link::Postgres(_) => "BEGIN",
        };
        session.run(begin, &[]).await?;
        session.state = State::Open;
        Ok(session)
    }
}

impl Session {
    /// Whether it is one of PostgreSQL, where others are listening.
    pub(super) const fn is_heard(&self) -> bool {
        matches!(self.link, Link::Postgres(_))
    }

    /// The rows that a query finds.
    pub(super) async fn rows<T: Row>(
        &mut self,
        sql: impl SqlSafeStr,
        values: &[Value<'_>],
    ) -> Result<Vec<T>, Refused> {
        let (sql, state) = (sql.into_sql_str(), self.begin());
        let rows = match &mut self.link {
            Link::Sqlite(link) => {
                let query = sqlx::query_as_with(sql, bound::<SqliteArguments>(values)?);
                in_time(query.fetch_all(&mut **link)).await?
            }
            Link::Postgres(link) => {
                let query = sqlx::query_as_with(sql, bound::<PgArguments>(values)?);
                in_time(query.fetch_all(&mut **link)).await?
            }
        };
        self.state = state;
        Ok(rows)
    }

    /// Runs a statement and tells how many rows it changed.
    pub(super) async fn run(
        &mut self,
        sql: impl SqlSafeStr,
        values: &[Value<'_>],
    ) -> Result<u64, Refused> {
        let (sql, state) = (sql.into_sql_str(), self.begin());
        let changed = match &mut self.link {
            Link::Sqlite(link) => {
                let query = sqlx::query_with(sql, bound::<SqliteArguments>(values)?);
                in_time(query.execute(&mut **link)).await?.rows_affected()
            }
            Link::Postgres(link) => {
                let query = sqlx::query_with(sql, bound::<PgArguments>(values)?);
                in_time(query.execute(&mut **link)).await?.rows_affected()
            }
        };
        self.state = state;
        Ok(changed)
    }

    /// A statement is under way from here; tells the state to go back to when it is answered.
    const fn begin(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Busy)
    }

    /// A statement with the rows of a sheet, its first parameter, in the place of `{rows}`: `e` is
    /// a row there, and `e->>0` its first value.
    pub(super) fn over(&self, sql: &str) -> SqlStr {
        let rows = match self.link {
            Link::Sqlite(_) => "(SELECT value AS e FROM json_each($1)) AS sheet",
            Link::Postgres(_) => "json_array_elements(CAST($1 AS json)) AS sheet (e)",
        };
        // Constant text in constant text.
        AssertSqlSafe(sql.replace("{rows}", rows)).into_sql_str()
    }

    /// Ends a transaction, keeping what it did.
    pub(super) async fn commit(mut self) -> Result<(), Refused> {
        self.end("COMMIT").await
    }

    /// Ends a transaction as if it had not been.
    pub(super) async fn forget(mut self) -> Result<(), Refused> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, how: &'static str) -> Result<(), Refused> {
        self.run(how, &[]).await?;
        self.state = State::Idle;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.state != State::Idle {
            match &mut self.link {
                Link::Sqlite(link) => link.close_on_drop(),
                Link::Postgres(link) => link.close_on_drop(),
            }
        }
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Refused> {
    tokio::time::timeout(PATIENCE, answer).await.map_err(late)?.map_err(refused)
}

fn bound<'q, A>(values: &[Value<'q>]) -> Result<A, Refused>
where
    A: Arguments,
    i64: Encode<'q, A::Database> + Type<A::Database>,
    &'q str: Encode<'q, A::Database> + Type<A::Database>,
{
    let mut arguments = A::default();
    for value in values {
        let added = match value {
            Value::Number(number) => arguments.add(*number),
            Value::Text(text) => arguments.add(*text),
        };
        added.map_err(|error| refused(sqlx::Error::Encode(error)))?;
    }
    Ok(arguments)
}

/// A number as it is stored: held at the largest that fits.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as it was stored.
pub(super) fn told(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
