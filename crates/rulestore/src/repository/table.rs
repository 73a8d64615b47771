//! Rules in a table that other programs edit, with the columns `key_pattern, scope,
//! rate_per_second, burst_capacity, plan, is_active, description`.
//!
//! The table is only read: completely, at an interval and on PostgreSQL notifications. Nothing is
//! created or migrated in its database.

mod catalog;
mod columns;
mod row;

use std::fmt;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use super::change_notifier::ChangeNotifier;
use super::database::SqlDatabase;
use super::open::{RepositoryUrl, with_repository_name};
use super::{RepositoryError, WakeReason, postgres, postgres_listener, sqlite};
use catalog::TableName;
use row::TableRow;

pub use columns::TableColumns;
pub use row::TableRules;

/// One connection is enough: the rows are read every few seconds.
const MAX_CONNECTIONS: u32 = 1;

/// A table of rules that other programs edit.
pub struct RuleTable {
    /// Its address, without secrets.
    name: String,
    address: RepositoryUrl,
    /// Kept open for PostgreSQL. A SQLite file may be replaced by another one, so it is opened for
    /// each read.
    pool: Option<SqlDatabase>,
    table: TableName,
    columns: TableColumns,
    interval: Duration,
    notifier: ChangeNotifier,
    /// Aborted when this value is dropped.
    _tasks: JoinSet<()>,
}

impl RuleTable {
    /// The table at `URL` or `URL#TABLE`; nothing is read yet. Requires a Tokio runtime.
    ///
    /// # Errors
    /// Fails if the address is invalid.
    pub fn new(
        url: &str,
        columns: TableColumns,
        interval: Duration,
    ) -> Result<Self, RepositoryError> {
        let (url, table) = match url.rsplit_once('#') {
            Some((url, table)) => (url, TableName::parse(table)?),
            None => (url, TableName::default()),
        };
        let address = RepositoryUrl::parse(url)?;
        let name = format!("{}#{table}", address.name());
        let (notifier, mut tasks) = (ChangeNotifier::default(), JoinSet::new());
        let pool = match &address {
            RepositoryUrl::Sqlite(_) => None,
            RepositoryUrl::Postgres(options) => {
                tasks.spawn(postgres_listener::run_listener(
                    PgOptions::clone(options),
                    notifier.clone(),
                ));
                Some(SqlDatabase::Postgres(postgres::pool(options, MAX_CONNECTIONS)))
            }
        };
        Ok(Self { name, address, pool, table, columns, interval, notifier, _tasks: tasks })
    }

    /// Its address, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// Fails if the database does not answer, or if the table or a column does not exist.
    pub async fn read(&self) -> Result<TableRules, RepositoryError> {
        self.read_rows()
            .await
            .map(TableRules::new)
            .map_err(|error| with_repository_name(&self.name, error))
    }

    /// Waits for a notification, at most for the poll interval.
    pub async fn wait_for_change(&self) -> WakeReason {
        self.notifier.wait(self.interval).await
    }

    async fn read_rows(&self) -> Result<Vec<TableRow>, RepositoryError> {
        match (&self.pool, &self.address) {
            (Some(database), _) => self.select(database).await,
            (None, RepositoryUrl::Sqlite(path)) => {
                let database = sqlite::open_read_only(path)?;
                let rows = self.select(&database).await;
                database.close().await;
                rows
            }
            (None, RepositoryUrl::Postgres(_)) => {
                Err(RepositoryError::Unavailable("it is not open".to_owned()))
            }
        }
    }

    async fn select(&self, database: &SqlDatabase) -> Result<Vec<TableRow>, RepositoryError> {
        let mut session = database.reader().await?;
        let found = self.table.find(&mut session).await?;
        // Safe: the names come from the catalog and are quoted.
        let sql = AssertSqlSafe(self.columns.query(&found)?);
        session.fetch_rows(sql, &[]).await
    }
}

type PgOptions = sqlx::postgres::PgConnectOptions;

impl fmt::Debug for RuleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("RuleTable").field("name", &self.name).finish_non_exhaustive()
    }
}
